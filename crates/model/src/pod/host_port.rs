//! Ports that a pod takes on its node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A port on the node's own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address; [`HostPort::ANY_IP`] if none was given.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A text that is no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol {0:?}")]
pub struct UnknownProtocol(pub String);

impl HostPort {
    /// The address that stands for all of them.
    pub const ANY_IP: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// Whether two pods with these ports cannot share a node.
    ///
    /// Differs: `host-port-wildcard`. Karpenter takes `::` for all addresses too; kube-scheduler knows `0.0.0.0` only,
    /// and so do we.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == Self::ANY_IP || other.ip == Self::ANY_IP)
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        match text {
            "" | "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(UnknownProtocol(text.to_owned())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Self::ANY_IP => write!(f, "{}/{}", self.port, self.protocol),
            ip => write!(f, "{ip} {}/{}", self.port, self.protocol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, port: u16, protocol: Protocol) -> HostPort {
        HostPort { ip: ip.parse().unwrap(), port, protocol }
    }

    #[test]
    fn ports_conflict_on_the_same_or_on_every_address() {
        let cases = [
            (port("0.0.0.0", 80, Protocol::Tcp), port("10.0.0.1", 80, Protocol::Tcp), true),
            (port("10.0.0.1", 80, Protocol::Tcp), port("10.0.0.1", 80, Protocol::Tcp), true),
            (port("10.0.0.1", 80, Protocol::Tcp), port("10.0.0.2", 80, Protocol::Tcp), false),
            (port("10.0.0.1", 80, Protocol::Tcp), port("10.0.0.1", 80, Protocol::Udp), false),
            (port("0.0.0.0", 80, Protocol::Tcp), port("0.0.0.0", 81, Protocol::Tcp), false),
            (port("::", 80, Protocol::Tcp), port("10.0.0.1", 80, Protocol::Tcp), false),
            (port("0.0.0.0", 80, Protocol::Tcp), port("::", 80, Protocol::Tcp), true),
        ];
        for (one, two, expected) in cases {
            assert_eq!(one.conflicts_with(&two), expected, "{one} and {two}");
            assert_eq!(two.conflicts_with(&one), expected, "{two} and {one}");
        }
    }
}
