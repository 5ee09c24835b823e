//! Ports on the node's own address.

use std::net::IpAddr;
use std::str::FromStr;

use model::pod::HostPort;

use crate::error::Problem;
use crate::field::Field;

/// The host ports of containers and of init containers that go on running, sorted, each once.
///
/// Differs: `init-host-ports`. Karpenter leaves out init containers; kube-scheduler counts the restartable ones.
pub(super) fn decode(spec: &Field<'_, '_>) -> Result<Vec<HostPort>, Problem> {
    let host_network = spec.field("hostNetwork")?.bool()?;
    let mut ports = Vec::new();
    for container in spec.field("containers")?.items()? {
        of_container(&container, host_network, &mut ports)?;
    }
    for container in spec.field("initContainers")?.items()? {
        if container.field("restartPolicy")?.str()? == Some("Always") {
            of_container(&container, host_network, &mut ports)?;
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn of_container(container: &Field<'_, '_>, host_network: bool, ports: &mut Vec<HostPort>) -> Result<(), Problem> {
    for port in container.field("ports")?.items()? {
        let number = |field: Field<'_, '_>| field.int(0, i64::from(u16::MAX));
        // With hostNetwork the API server copies each container port to the host.
        let host_port = match number(port.field("hostPort")?)?.unwrap_or(0) {
            0 if host_network => number(port.field("containerPort")?)?.unwrap_or(0),
            host_port => host_port,
        };
        let Some(host_port) = u16::try_from(host_port).ok().filter(|&host_port| host_port != 0) else { continue };
        let ip = port.field("hostIP")?;
        let protocol = port.field("protocol")?;
        ports.push(HostPort {
            ip: match ip.str_or_empty()? {
                "" => HostPort::ANY_IP,
                text => IpAddr::from_str(text).map_err(|_| ip.unknown("IP address"))?,
            },
            port: host_port,
            protocol: protocol.str_or_empty()?.parse().map_err(|_| protocol.unknown("protocol"))?,
        });
    }
    Ok(())
}
