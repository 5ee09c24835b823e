//! Which release of Kubernetes decides about devices, and with which feature gates: what the input says, and what is
//! known better.

use std::str::FromStr;

use dra_types::{Compat, Gate, Gates, KubernetesMinor};

/// What is known better than from the input.
#[derive(Debug, Clone, Copy, Default)]
pub struct Release<'a> {
    /// The release, whose own defaults count then.
    pub kubernetes: Option<KubernetesMinor>,
    /// Gates that differ, applied in their order.
    pub gates: &'a [GateSetting],
}

impl Release<'_> {
    /// What counts where the input says `given`.
    pub fn compat(&self, given: Compat) -> Compat {
        let (kubernetes, gates) = match self.kubernetes {
            Some(kubernetes) => (kubernetes, Gates::defaults(kubernetes)),
            None => (given.kubernetes, given.gates),
        };
        let gates = self.gates.iter().fold(gates, |gates, setting| match setting {
            GateSetting::All => Gates::all(kubernetes),
            GateSetting::One(gate, on) => gates.with(*gate, *on),
        });
        Compat::with_gates(kubernetes, gates)
    }

    /// Gates that were asked for and that the release of `compat` does not have.
    pub fn unknown<'s>(&'s self, compat: &'s Compat) -> impl Iterator<Item = Gate> + 's {
        self.gates.iter().filter_map(|setting| match setting {
            GateSetting::One(gate, true) if gate.known_since() > compat.kubernetes.minor() => Some(*gate),
            GateSetting::One(..) | GateSetting::All => None,
        })
    }
}

/// A change to the gates: `NAME=true`, `NAME=false`, `NAME`, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateSetting {
    /// Every gate that the release has is on.
    All,
    /// One is on, or off.
    One(Gate, bool),
}

impl FromStr for GateSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        let gate = name.parse::<Gate>().map_err(|error| error.to_string())?;
        match value {
            "true" => Ok(Self::One(gate, true)),
            "false" => Ok(Self::One(gate, false)),
            other => Err(format!("{name}: {other:?} is neither true nor false")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_of_the_input_count_unless_another_release_or_other_gates_are_asked_for() {
        let (old, new) = (KubernetesMinor::V1_36, KubernetesMinor::V1_37);
        let given = Compat::with_gates(old, Gates::defaults(old).with(Gate::ListTypeAttributes, true));
        let is_on = |release: Release<'_>| release.compat(given).is_on(Gate::ListTypeAttributes);
        assert!(is_on(Release::default()));
        let off = [GateSetting::One(Gate::ListTypeAttributes, false)];
        assert!(!is_on(Release { gates: &off, ..Release::default() }));
        let newer = Release { kubernetes: Some(new), ..Release::default() };
        assert_eq!(newer.compat(given), Compat::new(new));
        let all = Release { gates: &[GateSetting::All], ..newer };
        assert_eq!(all.compat(given).gates, Gates::all(new));
    }

    #[test]
    fn a_setting_is_a_name_with_or_without_value_or_all() {
        assert_eq!("all".parse(), Ok(GateSetting::All));
        assert_eq!("DRAAdminAccess".parse(), Ok(GateSetting::One(Gate::AdminAccess, true)));
        assert_eq!("DRAAdminAccess=false".parse(), Ok(GateSetting::One(Gate::AdminAccess, false)));
        assert_eq!(
            "DRAAdminAccess=no".parse::<GateSetting>(),
            Err("DRAAdminAccess: \"no\" is neither true nor false".to_owned())
        );
        assert!("Nonsense".parse::<GateSetting>().is_err());
    }
}
