//! Amazon Linux 2: a shell script that calls `/etc/eks/bootstrap.sh`, after whatever the user runs.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::mime::{self, Part};
use super::{Boot, Error, kubelet_args};

pub(super) fn render(boot: &Boot<'_>) -> Result<String, Error> {
    let mut parts = Vec::new();
    if let Some(text) = boot.user_data {
        parts = mime::parts_of(text, Part::script)?;
    }
    parts.push(Part::script(&script(boot)));
    Ok(mime::join(&parts).replace('\r', ""))
}

fn script(boot: &Boot<'_>) -> String {
    let cluster = boot.cluster;
    let mut script =
        "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1\n"
            .to_owned();
    script.push_str("/etc/eks/bootstrap.sh ");
    script.push_str(&quoted(&cluster.name));
    let mut option = |name: &str, value: &str| {
        // Writing to a text does not fail.
        let _ = write!(script, " \\\n  {name} {value}");
    };
    option("--apiserver-endpoint", &quoted(&cluster.endpoint));
    if let Some(bundle) = &cluster.ca_bundle {
        option("--b64-cluster-ca", &quoted(bundle));
    }
    if cluster.dns_ip.as_ref().is_some_and(IpAddr::is_ipv6) {
        option("--ip-family", "ipv6");
    }
    if let Some(address) = boot.cluster_dns().first() {
        option("--dns-cluster-ip", &quoted(address));
    }
    option("--use-max-pods", "false");
    option("--kubelet-extra-args", &quoted(&kubelet_args::render(boot)));
    if boot.is_raid0() {
        option("--local-disks", "raid0");
    }
    script.push('\n');
    script
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
