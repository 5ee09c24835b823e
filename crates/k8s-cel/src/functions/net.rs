//! IP addresses and networks. Zones and IPv4-mapped IPv6 addresses are refused.

use std::net::IpAddr;

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

/// A network; bits behind the prefix may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix_length: u8,
}

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        _ => Some(address),
    }
}

fn address_of(text: &str) -> Result<IpAddr, EvalError> {
    parse_address(text).ok_or_else(|| EvalError::invalid(format_args!("IP Address {text:?} parse error")))
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn parse_network(text: &str) -> Option<Cidr> {
    let (address, length) = text.rsplit_once('/')?;
    let address = parse_address(address)?;
    if length.len() > 1 && length.starts_with('0') || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix_length: u8 = length.parse().ok()?;
    (prefix_length <= bits(address)).then_some(Cidr { address, prefix_length })
}

fn network_of(text: &str) -> Result<Cidr, EvalError> {
    parse_network(text).ok_or_else(|| EvalError::invalid(format_args!("network address {text:?} parse error")))
}

fn masked_address(address: IpAddr, prefix_length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_length)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_length)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn contains(network: Cidr, address: IpAddr) -> bool {
    bits(network.address) == bits(address)
        && masked_address(network.address, network.prefix_length) == masked_address(address, network.prefix_length)
}

pub(crate) fn ip(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => address_of(text).map(Value::Ip),
        [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
        _ => no_overload("ip"),
    }
}

pub(crate) fn is_ip(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(parse_address(text).is_some())),
        _ => no_overload("isIP"),
    }
}

pub(crate) fn is_canonical(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(address_of(text)?.to_string() == **text)),
        _ => no_overload("ip.isCanonical"),
    }
}

fn of_address(args: &[Value], read: impl FnOnce(IpAddr) -> Value) -> Outcome {
    match args {
        [Value::Ip(address)] => Ok(read(*address)),
        _ => no_overload("ip"),
    }
}

pub(crate) fn family(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| Value::Int(if address.is_ipv4() { 4 } else { 6 }))
}

pub(crate) fn is_unspecified(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| Value::Bool(address.is_unspecified()))
}

pub(crate) fn is_loopback(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| Value::Bool(address.is_loopback()))
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

pub(crate) fn is_link_local_multicast(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| {
        Value::Bool(match address {
            IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
            IpAddr::V6(v6) => v6.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
        })
    })
}

pub(crate) fn is_link_local_unicast(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| Value::Bool(link_local_unicast(address)))
}

pub(crate) fn is_global_unicast(_: Context<'_>, args: &[Value]) -> Outcome {
    of_address(args, |address| {
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        let other = address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast;
        Value::Bool(!other && !link_local_unicast(address))
    })
}

pub(crate) fn cidr(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => network_of(text).map(Value::Cidr),
        _ => no_overload("cidr"),
    }
}

pub(crate) fn is_cidr(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(parse_network(text).is_some())),
        _ => no_overload("isCIDR"),
    }
}

pub(crate) fn contains_ip(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Cidr(network), Value::Ip(address)] => Ok(Value::Bool(contains(*network, *address))),
        [Value::Cidr(network), Value::String(text)] => Ok(Value::Bool(contains(*network, address_of(text)?))),
        _ => no_overload("containsIP"),
    }
}

pub(crate) fn contains_cidr(_: Context<'_>, args: &[Value]) -> Outcome {
    let (network, other) = match args {
        [Value::Cidr(network), Value::Cidr(other)] => (*network, *other),
        [Value::Cidr(network), Value::String(text)] => (*network, network_of(text)?),
        _ => return no_overload("containsCIDR"),
    };
    let inside = contains(network, masked_address(other.address, network.prefix_length.min(bits(other.address))));
    Ok(Value::Bool(inside && network.prefix_length <= other.prefix_length))
}

pub(crate) fn prefix_length(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Cidr(network)] => Ok(Value::Int(network.prefix_length.into())),
        _ => no_overload("prefixLength"),
    }
}

pub(crate) fn masked(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Cidr(network)] => {
            let address = masked_address(network.address, network.prefix_length);
            Ok(Value::Cidr(Cidr { address, prefix_length: network.prefix_length }))
        }
        _ => no_overload("masked"),
    }
}
