//! Which feature gates of Kubernetes are on, as far as they decide about devices.
//!
//! No API tells it, but every component says so in its metrics (`kubernetes_feature_enabled`). The API server's are
//! read, since it is there to be asked; that its gates are the scheduler's is how clusters are set up, and a field that
//! the API server drops for want of a gate no scheduler sees. Where they cannot be read, the release's own defaults
//! count.

use std::str::FromStr;

use dra_types::{Compat, Gate, Gates, KubernetesMinor};
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use tracing::{info, warn};

use crate::runtime::failures::cause_in_words;

/// The behaviour of a cluster of this release, or of the release with its defaults.
pub(super) async fn compat(client: &Client, kubernetes: KubernetesMinor) -> Compat {
    let compat = read(client, kubernetes).await.unwrap_or_else(|error| {
        warn!(
            error = cause_in_words(&error),
            "could not read the feature gates of the API server, using the defaults of its release"
        );
        Compat::new(kubernetes)
    });
    info!(%kubernetes, gates = names(compat.gates), "planning devices for this release of kube-scheduler");
    compat
}

/// For the log.
fn names(gates: Gates) -> String {
    let names: Vec<&str> = gates.iter().map(Gate::name).collect();
    names.join(",")
}

/// The behaviour of a cluster of this release.
///
/// # Errors
/// If the API server does not tell its metrics.
pub async fn read(client: &Client, kubernetes: KubernetesMinor) -> Result<Compat, kube::Error> {
    let request = Request::new("/metrics").list(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
    let metrics = client.request_text(request).await?;
    Ok(Compat::with_gates(kubernetes, gates(&metrics, Gates::defaults(kubernetes))))
}

/// `defaults` with what the metrics say.
fn gates(metrics: &str, defaults: Gates) -> Gates {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("kubernetes_feature_enabled{"));
    lines.fold(defaults, |gates, line| match setting(line) {
        Some((gate, on)) => gates.with(gate, on),
        None => gates,
    })
}

/// `name="DRAAdminAccess",stage=""} 1`
fn setting(line: &str) -> Option<(Gate, bool)> {
    let (labels, value) = line.split_once('}')?;
    let name = labels.split(',').find_map(|label| label.trim().strip_prefix("name=\"")?.strip_suffix('"'))?;
    Some((Gate::from_str(name).ok()?, value.trim() == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_metrics_and_what_is_not_there_has_its_default() {
        let metrics = "# TYPE kubernetes_feature_enabled gauge\n\
            kubernetes_feature_enabled{name=\"DRAListTypeAttributes\",stage=\"ALPHA\"} 1\n\
            kubernetes_feature_enabled{name=\"DRADeviceTaints\",stage=\"BETA\"} 0\n\
            kubernetes_feature_enabled{name=\"AnythingElse\",stage=\"\"} 1\n\
            apiserver_request_total{name=\"DRAAdminAccess\"} 0\n";
        let defaults = Gates::defaults(KubernetesMinor::V1_36);
        let expected = defaults.with(Gate::ListTypeAttributes, true).with(Gate::DeviceTaints, false);
        assert_eq!(gates(metrics, defaults), expected);
        assert_eq!(gates("", defaults), defaults);
    }
}
