//! Windows: a PowerShell block that calls the bootstrap script of EKS, after whatever the user runs.

use super::{Boot, kubelet_args};

pub(super) fn render(boot: &Boot<'_>) -> String {
    let cluster = boot.cluster;
    let mut lines = vec!["<powershell>".to_owned()];
    lines.extend(boot.user_data.map(|text| text.trim_end_matches('\n').to_owned()));
    lines.push(r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#.to_owned());
    let mut call = format!("& $EKSBootstrapScriptFile -EKSClusterName {}", quoted(&cluster.name));
    call.push_str(&format!(" -APIServerEndpoint {}", quoted(&cluster.endpoint)));
    if let Some(bundle) = &cluster.ca_bundle {
        call.push_str(&format!(" -Base64ClusterCA {}", quoted(bundle)));
    }
    call.push_str(&format!(" -KubeletExtraArgs {}", quoted(&kubelet_args::render(boot))));
    if let Some(address) = boot.cluster_dns().first() {
        call.push_str(&format!(" -DNSClusterIP {}", quoted(address)));
    }
    lines.push(call);
    lines.push("</powershell>\n".to_owned());
    lines.join("\n")
}

/// A text as PowerShell takes it literally.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
