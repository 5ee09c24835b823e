//! Which release of Kubernetes decides about devices, as commands on files are told.

use cluster::offline::{GateSetting, Release};
use dra_types::{Compat, KubernetesMinor};

use super::output;

/// The scheduler whose behaviour is simulated.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ReleaseArgs {
    /// The release of the cluster's scheduler, 1.34 to 1.37, with its default gates [default: the snapshot's, else
    /// 1.37]
    #[arg(long, value_name = "VERSION", value_parser = kubernetes)]
    kubernetes: Option<KubernetesMinor>,
    /// Feature gates of Kubernetes that differ from the snapshot's, or else from the release's defaults, as NAME=true
    /// or NAME=false; `all` turns every one on
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    gates: Vec<GateSetting>,
}

impl ReleaseArgs {
    pub(super) fn release(&self) -> Release<'_> {
        Release { kubernetes: self.kubernetes, gates: &self.gates }
    }

    /// What counts where the input says `given`; notes which gates that release does not have.
    pub(super) fn compat(&self, given: Option<Compat>) -> Compat {
        let compat = self.release().compat(given.unwrap_or_else(|| Compat::new(KubernetesMinor::NEWEST)));
        self.note_unknown(&compat);
        compat
    }

    /// Notes which gates were asked for and are not there.
    pub(super) fn note_unknown(&self, compat: &Compat) {
        for gate in self.release().unknown(compat) {
            output::note(format_args!("Kubernetes {} does not know {}; it stays off", compat.kubernetes, gate.name()));
        }
    }
}

fn kubernetes(text: &str) -> Result<KubernetesMinor, String> {
    let known = KubernetesMinor::ALL.into_iter().find(|release| release.to_string() == text.trim_start_matches('v'));
    known.ok_or_else(|| {
        let names = KubernetesMinor::ALL.map(|release| release.to_string());
        format!("known releases are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_kubernetes_writes_them() {
        assert_eq!(kubernetes("v1.36"), Ok(KubernetesMinor::V1_36));
        assert!(kubernetes("1.33").unwrap_err().contains("1.34, 1.35, 1.36, 1.37"));
    }
}
