//! The disks of a machine, in the form in which EC2 takes them.

use model::Quantity;
use serde::Serialize;

use crate::node_class::AmiFamily;
use crate::node_class::decode::Disk;

/// A disk in a launch template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// The device's name.
    pub device_name: Option<String>,
    /// Size in GiB.
    pub size_gib: Option<i64>,
    /// What kind of volume it is.
    pub volume_type: Option<&'static str>,
    /// Operations a second.
    pub iops: Option<i64>,
    /// MiB a second.
    pub throughput: Option<i64>,
    /// Whether it is encrypted.
    pub encrypted: Option<bool>,
    /// The key that encrypts it.
    pub kms_key_id: Option<String>,
    /// Whether it goes with the machine.
    pub delete_on_termination: Option<bool>,
    /// The snapshot that it is made from.
    pub snapshot_id: Option<String>,
    /// MiB a second at which the snapshot is read in.
    pub volume_initialization_rate: Option<i32>,
}

const GIB: i64 = 1 << 30;

/// The disks of machines of a node class: its own, else those that the family's images need.
///
/// None says that the image's own are left alone.
pub fn block_devices(disks: &[Disk], family: AmiFamily) -> Vec<BlockDevice> {
    if disks.is_empty() { of_family(family) } else { disks.iter().map(block_device).collect() }
}

fn block_device(disk: &Disk) -> BlockDevice {
    let volume = disk.volume.clone().unwrap_or_default();
    BlockDevice {
        device_name: disk.device_name.clone(),
        size_gib: volume.size.and_then(whole_gib),
        volume_type: volume.volume_type.map(|it| it.as_str()),
        iops: volume.iops,
        throughput: volume.throughput,
        encrypted: volume.encrypted,
        kms_key_id: volume.kms_key_id,
        delete_on_termination: volume.delete_on_termination,
        snapshot_id: volume.snapshot_id,
        volume_initialization_rate: volume.volume_initialization_rate,
    }
}

/// EC2 sells whole GiB, so a part of one is rounded up.
fn whole_gib(size: Quantity) -> Option<i64> {
    let bytes = size.value().ok()?;
    Some(bytes / GIB + i64::from(bytes % GIB > 0))
}

fn of_family(family: AmiFamily) -> Vec<BlockDevice> {
    let volume = |device: &str, size_gib| BlockDevice {
        device_name: Some(device.to_owned()),
        size_gib: Some(size_gib),
        volume_type: Some("gp3"),
        encrypted: Some(true),
        ..BlockDevice::default()
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => vec![volume("/dev/xvda", 20)],
        // The first has the system, the second what pods use.
        AmiFamily::Bottlerocket => vec![volume("/dev/xvda", 6), volume("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => vec![volume("/dev/sda1", 50)],
        AmiFamily::Custom => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::decode::Volume;

    #[test]
    fn each_family_has_its_own_disks() {
        for (family, expected) in [
            (AmiFamily::Al2023, &[("/dev/xvda", 20)][..]),
            (AmiFamily::Bottlerocket, &[("/dev/xvda", 6), ("/dev/xvdb", 20)]),
            (AmiFamily::Windows2025, &[("/dev/sda1", 50)]),
            (AmiFamily::Custom, &[]),
        ] {
            let disks = block_devices(&[], family);
            let found: Vec<_> =
                disks.iter().map(|disk| (disk.device_name.as_deref().unwrap(), disk.size_gib.unwrap())).collect();
            assert_eq!(found, expected, "{family}");
            assert!(disks.iter().all(|disk| disk.volume_type == Some("gp3") && disk.encrypted == Some(true)));
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_whole_gib() {
        for (size, expected) in [("20Gi", 20), ("1G", 1), ("100G", 94), ("1Ti", 1024), ("1T", 932)] {
            let volume = Volume { size: Some(Quantity::parse(size).unwrap()), ..Volume::default() };
            let disk = Disk { device_name: None, is_root: true, volume: Some(volume) };
            assert_eq!(block_devices(&[disk], AmiFamily::Al2023)[0].size_gib, Some(expected), "{size}");
        }
    }
}
