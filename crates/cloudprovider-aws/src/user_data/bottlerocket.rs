//! Bottlerocket: settings in TOML. The user's stay, comments included; those that make a machine join are set over
//! them.

use std::collections::BTreeMap;

use toml_edit::{Array, DocumentMut, Item, Table, Value, value};

use super::kubelet_args::{amounts, value_and_effect};
use super::{Boot, Error};

/// Runs before others, since pods' files go onto the array.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";
/// What older images do not bind by themselves.
const DIRECTORIES: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
/// The first version that binds them.
const BINDS_BY_ITSELF: [u64; 3] = [1, 46, 0];

pub(super) fn render(boot: &Boot<'_>) -> Result<String, Error> {
    let text = boot.user_data.unwrap_or_default();
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| Error::Toml(error.to_string().trim_end().to_owned()))?;
    let settings = table(document.as_table_mut(), "settings", "settings")?;
    let kubernetes = table(settings, "kubernetes", "settings.kubernetes")?;
    join_cluster(boot, kubernetes);
    merge(kubernetes, "node-labels", boot.labels)?;
    taints(boot, kubernetes);
    kubelet(boot, kubernetes)?;
    if boot.is_raid0() {
        let commands = table(settings, "bootstrap-commands", "settings.bootstrap-commands")?;
        commands.insert(MOUNT_COMMAND, Item::Table(mount_instance_storage(boot)));
    }
    Ok(document.to_string())
}

/// The table at a key, made if it is not there.
fn table<'a>(parent: &'a mut Table, key: &str, path: &str) -> Result<&'a mut Table, Error> {
    let error = || Error::Toml(format!("{path} is not a table"));
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        // Only tables with entries of their own get a header.
        table.set_implicit(true);
        Item::Table(table)
    });
    if item.is_inline_table()
        && let Ok(table) = std::mem::take(item).into_table()
    {
        *item = Item::Table(table);
    }
    item.as_table_mut().ok_or_else(error)
}

fn join_cluster(boot: &Boot<'_>, kubernetes: &mut Table) {
    let cluster = boot.cluster;
    kubernetes.insert("api-server", value(&cluster.endpoint));
    if let Some(bundle) = &cluster.ca_bundle {
        kubernetes.insert("cluster-certificate", value(bundle));
    }
    kubernetes.insert("cluster-name", value(&cluster.name));
    if let Some(address) = boot.cluster_dns().first() {
        kubernetes.insert("cluster-dns-ip", value(address));
    }
}

/// Sets entries in a table of texts; others stay.
fn merge(kubernetes: &mut Table, key: &str, entries: &BTreeMap<String, String>) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let merged = table(kubernetes, key, &format!("settings.kubernetes.{key}"))?;
    for (name, text) in entries {
        merged.insert(name, value(text));
    }
    Ok(())
}

/// Each key has a list, since there may be several taints of one key.
fn taints(boot: &Boot<'_>, kubernetes: &mut Table) {
    let mut by_key: BTreeMap<&str, Array> = BTreeMap::new();
    for taint in boot.taints {
        by_key.entry(&taint.key).or_default().push(value_and_effect(taint));
    }
    let mut all = Table::new();
    for (key, taints) in by_key {
        all.insert(key, Item::Value(Value::Array(taints)));
    }
    kubernetes.insert("node-taints", Item::Table(all));
}

/// Settings of the node class win over those of the TOML; what it does not set stays.
fn kubelet(boot: &Boot<'_>, kubernetes: &mut Table) -> Result<(), Error> {
    let kubelet = boot.kubelet;
    kubernetes.insert("max-pods", value(i64::from(boot.max_pods)));
    let maps = [
        ("system-reserved", amounts(&kubelet.system_reserved)),
        ("kube-reserved", amounts(&kubelet.kube_reserved)),
        ("eviction-hard", kubelet.eviction_hard.clone()),
        ("eviction-soft", kubelet.eviction_soft.clone()),
        ("eviction-soft-grace-period", kubelet.eviction_soft_grace_period.clone()),
    ];
    for (key, entries) in maps {
        if !entries.is_empty() {
            kubernetes.remove(key);
            merge(kubernetes, key, &entries)?;
        }
    }
    if let Some(seconds) = kubelet.eviction_max_pod_grace_period {
        kubernetes.insert("eviction-max-pod-grace-period", value(i64::from(seconds)));
    }
    let percentages = [
        ("image-gc-high-threshold-percent", kubelet.image_gc_high_threshold_percent),
        ("image-gc-low-threshold-percent", kubelet.image_gc_low_threshold_percent),
    ];
    for (key, percent) in percentages {
        if let Some(percent) = percent {
            kubernetes.insert(key, value(percent.to_string()));
        }
    }
    if let Some(is_on) = kubelet.cpu_cfs_quota {
        kubernetes.insert("cpu-cfs-quota-enforced", value(is_on));
    }
    Ok(())
}

fn mount_instance_storage(boot: &Boot<'_>) -> Table {
    let words = |words: &[&str]| words.iter().copied().collect::<Array>();
    let mut bind = words(&["apiclient", "ephemeral-storage", "bind"]);
    if boot.image_version.is_some_and(must_name_directories) {
        bind.push("--dirs");
        DIRECTORIES.iter().for_each(|directory| bind.push(*directory));
    }
    let mut commands = Array::new();
    commands.push(words(&["apiclient", "ephemeral-storage", "init"]));
    commands.push(bind);
    let mut table = Table::new();
    table.insert("commands", Item::Value(Value::Array(commands)));
    table.insert("essential", value(true));
    table.insert("mode", value("always"));
    table
}

/// Whether a version, with or without `v`, is older than the first that knows what to bind.
fn must_name_directories(version: &str) -> bool {
    let numbers = version.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
    let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers[..] < BINDS_BY_ITSELF[..])
}
