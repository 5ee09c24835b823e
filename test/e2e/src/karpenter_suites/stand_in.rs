//! A pod that stands for the controller, for tests that look for it in the cluster.
//!
//! They read the name of the Lease's holder, take the pod of that name, and ask its port 8080 for metrics by way of the
//! API server. The controller is no pod here, so one is made that has this computer's address, and the controller gets
//! its name.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::controller;
use crate::eventually;
use crate::{apply, install};

/// The Node that it is on. Its taint keeps everything else away.
pub(super) const NODE: &str = "control-plane-0";
const POD: &str = "karpenter-0";
/// Where Karpenter serves metrics.
const METRICS_PORT: u16 = 8080;

/// The address of this computer in its network. The API server refuses to pass requests on to a loopback address.
pub(super) fn address() -> Result<String> {
    const WHY: &str = "the performance suite needs an address that is no loopback address";
    // Nothing is sent: the kernel only chooses the address that it would send from.
    let anywhere = SocketAddr::from(([198, 51, 100, 1], 9));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context(WHY)?;
    socket.connect(anywhere).context(WHY)?;
    let address = socket.local_addr().context(WHY)?.ip();
    ensure!(!address.is_loopback(), "{WHY}, this computer has only {address}");
    Ok(address.to_string())
}

/// What makes kwok give pods on the host's network this address.
pub(super) fn argument(address: &str) -> String {
    format!("kwok=--node-ip={address}")
}

/// Makes the pod, and waits until it runs at this address.
pub(super) async fn make(client: &Client, address: &str) -> Result<()> {
    apply::apply(client, [node(), pod()]).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), install::NAMESPACE);
    eventually("the controller's stand-in runs", Duration::from_secs(30), async || {
        let status = pods.get(POD).await?.status.unwrap_or_default();
        let (phase, ip) = (status.phase.unwrap_or_default(), status.pod_ip.unwrap_or_default());
        ensure!(phase == "Running" && ip == address, "phase {phase:?}, address {ip:?}");
        Ok(())
    })
    .await
}

/// A controller that is found by that pod.
pub(super) fn as_leader(options: controller::Options) -> controller::Options {
    options.env("POD_NAME", POD).env("METRICS_PORT", &METRICS_PORT.to_string())
}

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": NODE, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "spec": { "taints": [{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }] },
    })
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": POD, "namespace": install::NAMESPACE },
        "spec": {
            "nodeName": NODE,
            "hostNetwork": true,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "controller", "image": "example.org/controller" }],
        },
    })
}
