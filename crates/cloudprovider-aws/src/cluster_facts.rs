//! What must be known of the cluster before machines can join it. Options say it; else EKS does, or the API server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::discovery::findings::MinorVersion;
use crate::options::Options;
use crate::service::{ClusterDescription, Error as CallError};
use crate::user_data;

/// What is known of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What machines are told.
    pub(crate) cluster: user_data::Cluster,
    /// The version of Kubernetes.
    pub(crate) kubernetes: MinorVersion,
    /// The cluster's ARN, if EKS tells it.
    pub(crate) arn: Option<String>,
}

/// What EKS and the API server say.
#[derive(Debug)]
pub(crate) struct Told {
    /// EKS, of the cluster by its name.
    pub(crate) eks: Result<ClusterDescription, CallError>,
    /// The API server, of its version: such as `v1.33.1-eks-abc`.
    pub(crate) server_version: Result<String, String>,
    /// The certificates by which this process trusts the API server, in DER.
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// What nobody says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    /// Where machines reach the API server.
    #[error("--cluster-endpoint is not given, and EKS does not tell it: {0}")]
    Endpoint(String),
    /// Which images are for the cluster.
    #[error("the version of Kubernetes: {0}")]
    Version(String),
}

impl Facts {
    /// Options win. Without a word of EKS the range of services stays unknown, which only Amazon Linux 2023 needs.
    pub(crate) fn new(options: &Options, told: Told) -> Result<Self, Unknown> {
        let Told { eks, server_version, certificates } = told;
        let of_eks = || eks.as_ref().map_err(ToString::to_string);
        let endpoint = match &options.cluster_endpoint {
            Some(endpoint) => endpoint.clone(),
            None => of_eks().map(|it| it.endpoint.clone()).map_err(Unknown::Endpoint)?,
        };
        let version = if options.eks_control_plane { of_eks().map(|it| it.version.clone()) } else { server_version };
        let version = version.map_err(Unknown::Version)?;
        let kubernetes =
            MinorVersion::parse(&version).ok_or_else(|| Unknown::Version(format!("{version:?} is none")))?;
        let arn = eks.as_ref().ok().and_then(|it| it.arn.clone());
        let service_cidr = eks.ok().and_then(|it| it.service_ipv4_cidr.or(it.service_ipv6_cidr));
        let ca_bundle = options.cluster_ca_bundle.clone().or_else(|| ca_bundle(&certificates));
        let cluster = user_data::Cluster {
            name: options.cluster_name.clone(),
            endpoint,
            ca_bundle,
            dns_ip: service_cidr.as_deref().and_then(dns_ip),
            service_cidr,
        };
        Ok(Self { cluster, kubernetes, arn })
    }
}

/// The address of the DNS service: EKS gives it the tenth of the range.
fn dns_ip(service_cidr: &str) -> Option<IpAddr> {
    const TENTH: u8 = 10;
    let (first, _) = service_cidr.split_once('/')?;
    Some(match first.parse().ok()? {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).checked_add(TENTH.into())?).into(),
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).checked_add(TENTH.into())?).into(),
    })
}

/// Certificates as kubeconfigs have them: PEM, as base64.
fn ca_bundle(certificates: &[Vec<u8>]) -> Option<String> {
    const LINE: usize = 64;
    let pem: String = certificates
        .iter()
        .map(|der| {
            let text = STANDARD.encode(der);
            let mut lines = vec!["-----BEGIN CERTIFICATE-----"];
            let mut rest = text.as_str();
            while let Some((line, after)) = rest.split_at_checked(LINE) {
                lines.push(line);
                rest = after;
            }
            lines.extend(Some(rest).filter(|rest| !rest.is_empty()));
            format!("{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
        })
        .collect();
    (!pem.is_empty()).then(|| STANDARD.encode(pem))
}

#[cfg(test)]
mod tests {
    use cloudprovider::options::{OptionValue, OptionValues};

    use super::*;
    use crate::service::Kind;

    fn options(given: &[(&'static str, &str)]) -> Options {
        let mut values = OptionValues::default();
        for (flag, text) in [("cluster-name", "c")].iter().chain(given) {
            let is_switch = *text == "true";
            let value = if is_switch { OptionValue::Switch(true) } else { OptionValue::Text((*text).to_owned()) };
            values.set(flag, value);
        }
        Options::new(&values).unwrap()
    }

    fn description() -> ClusterDescription {
        ClusterDescription {
            arn: Some("arn:aws:eks:us-east-1:123456789012:cluster/c".to_owned()),
            endpoint: "https://c.eks.amazonaws.com".to_owned(),
            version: "1.32".to_owned(),
            service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
            service_ipv6_cidr: None,
        }
    }

    fn refused() -> Result<ClusterDescription, CallError> {
        let code = Some("AccessDeniedException".to_owned());
        let call = "eks:DescribeCluster";
        Err(CallError { call, kind: Kind::Unauthorized, code, message: "not allowed".to_owned() })
    }

    fn told(eks: Result<ClusterDescription, CallError>) -> Told {
        Told { eks, server_version: Ok("v1.33.1-eks-abc".to_owned()), certificates: vec![vec![7; 60]] }
    }

    #[test]
    fn eks_and_the_api_server_say_what_the_options_do_not() {
        let facts = Facts::new(&options(&[]), told(Ok(description()))).unwrap();
        assert_eq!((&*facts.cluster.name, &*facts.cluster.endpoint), ("c", "https://c.eks.amazonaws.com"));
        assert_eq!(facts.arn.as_deref(), Some("arn:aws:eks:us-east-1:123456789012:cluster/c"));
        assert_eq!(facts.kubernetes, MinorVersion(33));
        assert_eq!(facts.cluster.service_cidr.as_deref(), Some("10.100.0.0/16"));
        assert_eq!(facts.cluster.dns_ip, Some("10.100.0.10".parse().unwrap()));
        let pem = STANDARD.decode(facts.cluster.ca_bundle.unwrap()).unwrap();
        let pem = String::from_utf8(pem).unwrap();
        let lines: Vec<_> = pem.lines().collect();
        assert_eq!(
            (lines.first(), lines.last()),
            (Some(&"-----BEGIN CERTIFICATE-----"), Some(&"-----END CERTIFICATE-----"))
        );
        assert_eq!(STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap(), [7; 60]);
    }

    #[test]
    fn options_are_taken_over_what_eks_says() {
        let given = [
            ("cluster-endpoint", "https://other.example.com"),
            ("cluster-ca-bundle", "Y2E="),
            ("eks-control-plane", "true"),
        ];
        let facts = Facts::new(&options(&given), told(Ok(description()))).unwrap();
        assert_eq!(facts.cluster.endpoint, "https://other.example.com");
        assert_eq!(facts.cluster.ca_bundle.as_deref(), Some("Y2E="));
        assert_eq!(facts.kubernetes, MinorVersion(32), "EKS is asked for the version");
    }

    #[test]
    fn without_a_right_to_ask_eks_the_endpoint_must_be_given_and_the_rest_is_left_open() {
        let error = Facts::new(&options(&[]), told(refused())).unwrap_err();
        let expected = "--cluster-endpoint is not given, and EKS does not tell it: eks:DescribeCluster: \
                        AccessDeniedException: not allowed";
        assert_eq!(error.to_string(), expected);
        let given = options(&[("cluster-endpoint", "https://other.example.com")]);
        let facts = Facts::new(&given, told(refused())).unwrap();
        assert_eq!((facts.cluster.service_cidr, facts.cluster.dns_ip), (None, None));
    }

    #[test]
    fn a_version_that_nobody_tells_is_named_with_the_reason() {
        let nobody = Told { server_version: Err("no answer".to_owned()), ..told(Ok(description())) };
        let error = Facts::new(&options(&[]), nobody).unwrap_err();
        assert_eq!(error.to_string(), "the version of Kubernetes: no answer");
        let unknown = Told { server_version: Ok("new".to_owned()), ..told(Ok(description())) };
        assert!(Facts::new(&options(&[]), unknown).unwrap_err().to_string().contains("\"new\" is none"));
    }

    #[test]
    fn the_dns_service_has_the_tenth_address_of_services() {
        assert_eq!(dns_ip("172.20.0.0/16"), Some("172.20.0.10".parse().unwrap()));
        assert_eq!(dns_ip("fd12:3456::/108"), Some("fd12:3456::a".parse().unwrap()));
        assert_eq!((dns_ip("10.0.0.0"), dns_ip("ten/8")), (None, None));
    }
}
