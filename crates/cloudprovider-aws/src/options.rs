//! The options of this provider, as data and as checked values. Names and defaults are those of Karpenter's AWS binary
//! (`pkg/operator/options/options.go` of karpenter-provider-aws 1.15).

use std::collections::BTreeMap;
use std::time::Duration;

use cloudprovider::options::{OptionDeclaration, OptionKind, OptionValues, Visibility};

use crate::instance_types::settings::MachineOptions;
use crate::node_class::kubelet::Expressions;

const fn text(flag: &'static str, env: &'static str, help: &'static str) -> OptionDeclaration {
    OptionDeclaration { flag, env, kind: OptionKind::Text, help, visibility: Visibility::Shown }
}

const fn switch(flag: &'static str, env: &'static str, help: &'static str) -> OptionDeclaration {
    OptionDeclaration { flag, env, kind: OptionKind::Switch, help, visibility: Visibility::Shown }
}

const CLUSTER_CA_BUNDLE: OptionDeclaration = text(
    "cluster-ca-bundle",
    "CLUSTER_CA_BUNDLE",
    "Certificates by which machines trust the API server, base64 [default: those that the controller trusts it by]",
);
const CLUSTER_NAME: OptionDeclaration =
    text("cluster-name", "CLUSTER_NAME", "Name of the EKS cluster, by which machines are tagged; required");
const CLUSTER_ENDPOINT: OptionDeclaration = text(
    "cluster-endpoint",
    "CLUSTER_ENDPOINT",
    "URL at which machines reach the API server [default: what EKS says of the cluster]",
);
const ISOLATED_VPC: OptionDeclaration = switch(
    "isolated-vpc",
    "ISOLATED_VPC",
    "Do without the services that have no endpoint within a VPC: prices are those built in, and instance profiles are \
     not made",
);
const EKS_CONTROL_PLANE: OptionDeclaration =
    switch("eks-control-plane", "EKS_CONTROL_PLANE", "Ask EKS for the version of Kubernetes, not the API server");
const VM_MEMORY_OVERHEAD_PERCENT: OptionDeclaration = text(
    "vm-memory-overhead-percent",
    "VM_MEMORY_OVERHEAD_PERCENT",
    "Share of a machine's memory that its hypervisor is taken to keep, until a machine has told [default: 0.075]",
);
const INTERRUPTION_QUEUE: OptionDeclaration = text(
    "interruption-queue",
    "INTERRUPTION_QUEUE",
    "Name of the SQS queue that tells of spot interruptions and the like [default: none, and nothing is heard of them]",
);
const RESERVED_ENIS: OptionDeclaration = text(
    "reserved-enis",
    "RESERVED_ENIS",
    "Network interfaces of each machine that are not for pods, when counting how many pods it takes [default: 0]",
);
const DISABLE_DRY_RUN: OptionDeclaration =
    switch("disable-dry-run", "DISABLE_DRY_RUN", "Take EC2NodeClasses for valid without asking EC2 by a dry run");
const ENABLE_ZONAL_SHIFT: OptionDeclaration =
    switch("enable-zonal-shift", "ENABLE_ZONAL_SHIFT", "Launch nothing in zones that ARC has shifted away from");
const AMI_REFRESH_INTERVAL: OptionDeclaration = text(
    "ami-refresh-interval",
    "AMI_REFRESH_INTERVAL",
    "How long images are taken to be what they were, at least 1m [default: 1m]",
);
const SUBNET_REFRESH_INTERVAL: OptionDeclaration = text(
    "subnet-refresh-interval",
    "SUBNET_REFRESH_INTERVAL",
    "How long subnets are taken to be what they were, at least 1m [default: 1m]",
);
const SECURITY_GROUP_REFRESH_INTERVAL: OptionDeclaration = text(
    "security-group-refresh-interval",
    "SECURITY_GROUP_REFRESH_INTERVAL",
    "How long security groups are taken to be what they were, at least 1m [default: 1m]",
);
const RECORDS_NAMESPACE: OptionDeclaration = text(
    "ec2-records-namespace",
    "EC2_RECORDS_NAMESPACE",
    "Namespace of the ConfigMaps that say what is being launched and what could not be had [default: the pod's own, \
     else kube-system]",
);
const AWS_FEATURE_GATES: OptionDeclaration = text(
    "aws-feature-gates",
    "AWS_FEATURE_GATES",
    "Features of this provider, such as NodeClassCEL=true; unknown ones are left out [default: NodeClassCEL=false]",
);

/// All of them, in the order of the help.
pub(crate) const ALL: [OptionDeclaration; 15] = [
    CLUSTER_NAME,
    CLUSTER_ENDPOINT,
    CLUSTER_CA_BUNDLE,
    INTERRUPTION_QUEUE,
    ISOLATED_VPC,
    EKS_CONTROL_PLANE,
    ENABLE_ZONAL_SHIFT,
    DISABLE_DRY_RUN,
    VM_MEMORY_OVERHEAD_PERCENT,
    RESERVED_ENIS,
    AMI_REFRESH_INTERVAL,
    SUBNET_REFRESH_INTERVAL,
    SECURITY_GROUP_REFRESH_INTERVAL,
    RECORDS_NAMESPACE,
    AWS_FEATURE_GATES,
];

/// The region that offline commands plan for.
pub(crate) const REGION: OptionDeclaration =
    text("region", "REGION", "The region whose machines there are, such as eu-central-1 [default: us-east-1]");
/// A file of prices, for offline commands.
pub(crate) const PRICES: OptionDeclaration = OptionDeclaration {
    flag: "prices",
    env: "FILE",
    kind: OptionKind::Path,
    help: "File with the region's prices, over those that are built in; required but for us-east-1 [default: none]",
    visibility: Visibility::Shown,
};

/// The options of offline commands.
pub(crate) const CATALOGUE: [OptionDeclaration; 2] = [REGION, PRICES];

/// The least of the intervals.
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
const ONE_NANO: u64 = 1_000_000_000;

/// The values of the options, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The cluster's name.
    pub cluster_name: String,
    /// Where machines reach the API server.
    pub cluster_endpoint: Option<String>,
    /// Certificates by which machines trust the API server, base64.
    pub cluster_ca_bundle: Option<String>,
    /// The queue that tells of interruptions.
    pub interruption_queue: Option<String>,
    /// Whether services without an endpoint within a VPC are out of reach.
    pub isolated_vpc: bool,
    /// Whether EKS is asked for the version of Kubernetes.
    pub eks_control_plane: bool,
    /// Whether zones that ARC has shifted away from are avoided.
    pub zonal_shift: bool,
    /// Whether EC2NodeClasses are valid without a dry run.
    pub disable_dry_run: bool,
    /// What changes the instance types.
    pub machines: MachineOptions,
    /// How long images are taken to be what they were.
    pub ami_refresh_interval: Duration,
    /// How long subnets are taken to be what they were.
    pub subnet_refresh_interval: Duration,
    /// How long security groups are taken to be what they were.
    pub security_group_refresh_interval: Duration,
    /// The namespace of what is written down over a restart; the process' own where absent.
    pub records_namespace: Option<String>,
    /// Gates that nothing reads, for a line in the log.
    pub unknown_gates: Vec<String>,
}

/// An option whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}{}{value}: {reason}", if value.is_empty() { "" } else { " " })]
pub struct Error {
    flag: &'static str,
    value: String,
    reason: &'static str,
}

impl Options {
    /// Checks the values that a user gave.
    ///
    /// # Errors
    /// For the first option, in the order of the help, whose value cannot be used.
    pub fn new(values: &OptionValues) -> Result<Self, Error> {
        let text = |option: OptionDeclaration| values.text(option.flag).map(str::to_owned);
        let missing = Error { flag: CLUSTER_NAME.flag, value: String::new(), reason: "the cluster's name is required" };
        let gates = gates(values)?;
        let machines = MachineOptions::default();
        Ok(Self {
            cluster_name: text(CLUSTER_NAME).ok_or(missing)?,
            cluster_endpoint: parsed(values, CLUSTER_ENDPOINT, "is not a URL with scheme and host", endpoint)?,
            cluster_ca_bundle: text(CLUSTER_CA_BUNDLE),
            interruption_queue: text(INTERRUPTION_QUEUE),
            isolated_vpc: values.is_on(ISOLATED_VPC.flag),
            eks_control_plane: values.is_on(EKS_CONTROL_PLANE.flag),
            zonal_shift: values.is_on(ENABLE_ZONAL_SHIFT.flag),
            disable_dry_run: values.is_on(DISABLE_DRY_RUN.flag),
            machines: MachineOptions {
                vm_memory_overhead_nano: parsed(
                    values,
                    VM_MEMORY_OVERHEAD_PERCENT,
                    "is not a number from 0 to less than 1, of at most nine decimals",
                    share,
                )?
                .unwrap_or(machines.vm_memory_overhead_nano),
                expressions: if gates.node_class_cel { Expressions::Allowed } else { Expressions::Disabled },
                reserved_enis: parsed(values, RESERVED_ENIS, "is not a whole number, 0 or more", |it| it.parse().ok())?
                    .unwrap_or(machines.reserved_enis),
            },
            ami_refresh_interval: interval(values, AMI_REFRESH_INTERVAL)?,
            subnet_refresh_interval: interval(values, SUBNET_REFRESH_INTERVAL)?,
            security_group_refresh_interval: interval(values, SECURITY_GROUP_REFRESH_INTERVAL)?,
            records_namespace: text(RECORDS_NAMESPACE),
            unknown_gates: gates.unknown,
        })
    }
}

fn parsed<T>(
    values: &OptionValues,
    option: OptionDeclaration,
    reason: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let read = |text: &str| read(text).ok_or_else(|| Error { flag: option.flag, value: text.to_owned(), reason });
    values.text(option.flag).map(read).transpose()
}

fn endpoint(text: &str) -> Option<String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let is_host = !host.is_empty() && !host.starts_with(['/', ':']) && !host.contains(char::is_whitespace);
    is_host.then(|| text.to_owned())
}

/// A decimal fraction, in parts of 10⁹.
fn share(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 || whole.len() + fraction.len() == 0 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.checked_mul(ONE_NANO)?.checked_add(fraction).filter(|share| *share < ONE_NANO)
}

fn interval(values: &OptionValues, option: OptionDeclaration) -> Result<Duration, Error> {
    let read = |text: &str| {
        let duration = api::duration::parse(text).ok()?;
        Some(duration).filter(|duration| *duration >= LEAST_INTERVAL)
    };
    Ok(parsed(values, option, "is not a duration of at least 1m", read)?.unwrap_or(LEAST_INTERVAL))
}

struct Gates {
    node_class_cel: bool,
    unknown: Vec<String>,
}

fn gates(values: &OptionValues) -> Result<Gates, Error> {
    let read = |text: &str| {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.map(|pair| Some((pair.split_once('=')?.0.to_owned(), pair.split_once('=')?.1.parse().ok()?))).collect()
    };
    let given: Option<BTreeMap<String, bool>> =
        parsed(values, AWS_FEATURE_GATES, "is not a list of Name=true and Name=false", read)?;
    let mut given = given.unwrap_or_default();
    let node_class_cel = given.remove("NodeClassCEL").unwrap_or_default();
    Ok(Gates { node_class_cel, unknown: given.into_keys().collect() })
}

#[cfg(test)]
mod tests {
    use cloudprovider::options::OptionValue;

    use super::*;

    fn options(given: &[(&'static str, &str)]) -> Result<Options, String> {
        let mut values = OptionValues::default();
        for (flag, text) in given {
            values.set(flag, OptionValue::Text((*text).to_owned()));
        }
        Options::new(&values).map_err(|error| error.to_string())
    }

    #[test]
    fn absent_options_have_karpenters_defaults() {
        let options = options(&[("cluster-name", "c")]).unwrap();
        assert_eq!((options.machines.vm_memory_overhead_nano, options.machines.reserved_enis), (75_000_000, 0));
        assert_eq!(options.ami_refresh_interval, Duration::from_secs(60));
        assert!(!options.isolated_vpc && !options.disable_dry_run);
        assert_eq!(options.machines.expressions, Expressions::Disabled);
        assert_eq!((options.cluster_endpoint, options.interruption_queue), (None, None));
    }

    #[test]
    fn values_are_read() {
        let options = options(&[
            ("cluster-name", "c"),
            ("cluster-endpoint", "https://x.eks.amazonaws.com"),
            ("vm-memory-overhead-percent", "0.05"),
            ("reserved-enis", "1"),
            ("subnet-refresh-interval", "2m30s"),
            ("aws-feature-gates", "NodeClassCEL=true, Other=false"),
        ])
        .unwrap();
        assert_eq!((options.machines.vm_memory_overhead_nano, options.machines.reserved_enis), (50_000_000, 1));
        assert_eq!(options.subnet_refresh_interval, Duration::from_secs(150));
        assert_eq!(options.machines.expressions, Expressions::Allowed);
        assert_eq!(options.unknown_gates, ["Other"]);
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_its_flag_and_the_reason() {
        assert_eq!(options(&[]).unwrap_err(), "--cluster-name: the cluster's name is required");
        for (flag, value, expected) in [
            ("cluster-endpoint", "x.eks", "--cluster-endpoint x.eks: is not a URL with scheme and host"),
            ("reserved-enis", "-1", "--reserved-enis -1: is not a whole number, 0 or more"),
            ("ami-refresh-interval", "59s", "--ami-refresh-interval 59s: is not a duration of at least 1m"),
            (
                "vm-memory-overhead-percent",
                "7.5",
                "--vm-memory-overhead-percent 7.5: is not a number from 0 to less than 1, of at most nine decimals",
            ),
            (
                "aws-feature-gates",
                "NodeClassCEL",
                "--aws-feature-gates NodeClassCEL: is not a list of Name=true and Name=false",
            ),
        ] {
            assert_eq!(options(&[("cluster-name", "c"), (flag, value)]).unwrap_err(), expected);
        }
    }
}
