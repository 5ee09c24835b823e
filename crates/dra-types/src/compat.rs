//! Which Kubernetes release and which feature gates an answer is for.
//!
//! Gate names, stages and defaults are upstream's. A gate that a release does not know is off in it, whatever is asked.

use std::fmt;
use std::str::FromStr;

/// A Kubernetes minor release whose behaviour is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubernetesMinor {
    /// 1.34, where `resource.k8s.io/v1` became generally available.
    V1_34,
    /// 1.35.
    V1_35,
    /// 1.36.
    V1_36,
    /// 1.37.
    V1_37,
}

impl KubernetesMinor {
    /// All, oldest first.
    pub const ALL: [Self; 4] = [Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    /// The newest known.
    pub const NEWEST: Self = Self::V1_37;

    /// The number after the dot.
    pub const fn minor(self) -> u32 {
        match self {
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// The release of a `1.minor` server: the nearest known one, so that a newer server is treated as the newest.
    /// None for servers older than 1.34, which do not serve `resource.k8s.io/v1`.
    pub fn from_minor(minor: u32) -> Option<Self> {
        match minor {
            0..=33 => None,
            34 => Some(Self::V1_34),
            35 => Some(Self::V1_35),
            36 => Some(Self::V1_36),
            37.. => Some(Self::V1_37),
        }
    }
}

impl fmt::Display for KubernetesMinor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

macro_rules! define_gates {
    ($($(#[$meta:meta])* $gate:ident = $name:literal, known since $since:literal, default $default:expr;)*) => {
        /// A feature gate of DRA that can change an answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Gate {
            $($(#[$meta])* $gate,)*
        }

        impl Gate {
            /// All, in the order of the support matrix.
            pub const ALL: &'static [Self] = &[$(Self::$gate),*];

            /// Upstream's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$gate => $name,)*
                }
            }

            /// The first minor release that knows the gate.
            pub const fn known_since(self) -> u32 {
                match self {
                    $(Self::$gate => $since,)*
                }
            }

            /// The first minor release in which it is on unless turned off; none while it is off by default.
            pub const fn on_by_default_since(self) -> Option<u32> {
                match self {
                    $(Self::$gate => $default,)*
                }
            }
        }
    };
}

define_gates! {
    /// `adminAccess` in requests (KEP-5018).
    AdminAccess = "DRAAdminAccess", known since 32, default Some(34);
    /// `firstAvailable` (KEP-4816).
    PrioritizedList = "DRAPrioritizedList", known since 33, default Some(34);
    /// Shared counters and per-device node selection (KEP-4815).
    PartitionableDevices = "DRAPartitionableDevices", known since 33, default Some(36);
    /// Taints of devices (KEP-5055).
    DeviceTaints = "DRADeviceTaints", known since 33, default Some(36);
    /// Taints by DeviceTaintRule (KEP-5055).
    DeviceTaintRules = "DRADeviceTaintRules", known since 35, default Some(37);
    /// Devices shared by capacity, `distinctAttribute` (KEP-5075).
    ConsumableCapacity = "DRAConsumableCapacity", known since 34, default Some(36);
    /// Fractional numbers in capacity ranges (KEP-5075). In 1.37 only on by itself where the cluster need not be
    /// compatible with 1.36 any more (`--min-compatibility-version`), which is not the default.
    FractionalCapacityRange = "DRAFractionalCapacityRange", known since 37, default Some(38);
    /// Conditions waited for before a pod is bound (KEP-5007).
    DeviceBindingConditions = "DRADeviceBindingConditions", known since 34, default Some(36);
    /// Extended resources served by DRA (KEP-5004).
    ExtendedResource = "DRAExtendedResource", known since 34, default Some(36);
    /// Attributes that are lists, `includes` in CEL (KEP-5491).
    ListTypeAttributes = "DRAListTypeAttributes", known since 36, default None;
    /// CPU, memory and the like handed out or cost by devices (KEP-5517).
    NodeAllocatableResources = "DRANodeAllocatableResources", known since 36, default None;
    /// Claims of PodGroups (KEP-5729).
    WorkloadResourceClaims = "DRAWorkloadResourceClaims", known since 36, default None;
    /// Attributes computed by CEL in a request (KEP-6080).
    DerivedAttributes = "DRADerivedAttributes", known since 37, default None;
    /// Compatibility groups of counter consumers (KEP-5963).
    DeviceCompatibilityGroups = "DRADeviceCompatibilityGroups", known since 37, default None;
    /// Node operations a driver does not need (KEP-5945).
    OptionalNodeOperations = "DRAOptionalNodeOperations", known since 37, default None;
}

/// No gate of that name is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown DRA feature gate {0:?}")]
pub struct UnknownGate(pub String);

impl FromStr for Gate {
    type Err = UnknownGate;

    fn from_str(name: &str) -> Result<Self, UnknownGate> {
        Self::ALL.iter().copied().find(|gate| gate.name() == name).ok_or_else(|| UnknownGate(name.to_owned()))
    }
}

/// A set of feature gates that are on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gates(u32);

impl Gates {
    /// None on.
    pub const NONE: Self = Self(0);

    /// The gates that a release turns on by itself.
    pub fn defaults(kubernetes: KubernetesMinor) -> Self {
        let on = |gate: &&Gate| gate.on_by_default_since().is_some_and(|since| since <= kubernetes.minor());
        Gate::ALL.iter().filter(on).copied().collect()
    }

    /// All gates that a release knows.
    pub fn all(kubernetes: KubernetesMinor) -> Self {
        Gate::ALL.iter().filter(|gate| gate.known_since() <= kubernetes.minor()).copied().collect()
    }

    /// Whether a gate is on.
    pub const fn is_on(self, gate: Gate) -> bool {
        self.0 & (1 << gate as u32) != 0
    }

    /// This set with one gate turned on or off.
    #[must_use]
    pub const fn with(self, gate: Gate, on: bool) -> Self {
        let bit = 1 << gate as u32;
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The gates that are on, in the order of [`Gate::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Gate> {
        Gate::ALL.iter().copied().filter(move |gate| self.is_on(*gate))
    }
}

impl FromIterator<Gate> for Gates {
    fn from_iter<I: IntoIterator<Item = Gate>>(gates: I) -> Self {
        gates.into_iter().fold(Self::NONE, |set, gate| set.with(gate, true))
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Gate::name)).finish()
    }
}

/// Which state of a minor release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edition {
    /// As it was released.
    Release,
    /// Before it was released, when upstream's test suite was recorded for our conformance vectors.
    Alpha,
    /// Without its defects.
    Fixed,
}

/// Whose behaviour is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Compat {
    /// The release of the cluster's scheduler.
    pub kubernetes: KubernetesMinor,
    /// The gates that are on in it.
    pub gates: Gates,
    edition: Edition,
}

impl Compat {
    /// A release with its default gates.
    pub fn new(kubernetes: KubernetesMinor) -> Self {
        Self { kubernetes, gates: Gates::defaults(kubernetes), edition: Edition::Release }
    }

    /// A release with the given gates; those that it does not know stay off.
    pub fn with_gates(kubernetes: KubernetesMinor, gates: Gates) -> Self {
        Self { kubernetes, gates: Gates(gates.0 & Gates::all(kubernetes).0), edition: Edition::Release }
    }

    /// The newest release with its default gates and without its defects.
    pub fn fixed() -> Self {
        Self { edition: Edition::Fixed, ..Self::new(KubernetesMinor::NEWEST) }
    }

    /// 1.37 while it was an alpha release, with the given gates. The conformance vectors were recorded then.
    pub fn alpha_1_37(gates: Gates) -> Self {
        Self { edition: Edition::Alpha, ..Self::with_gates(KubernetesMinor::V1_37, gates) }
    }

    /// Which state of the release.
    pub const fn edition(&self) -> Edition {
        self.edition
    }

    /// Whether a gate is on.
    pub const fn is_on(&self, gate: Gate) -> bool {
        self.gates.is_on(gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_found_by_upstreams_name_and_no_other() {
        for gate in Gate::ALL {
            assert_eq!(gate.name().parse(), Ok(*gate));
        }
        assert_eq!("DRANope".parse::<Gate>(), Err(UnknownGate("DRANope".to_owned())));
    }

    #[test]
    fn defaults_follow_the_release() {
        let on = |kubernetes, gate| Compat::new(kubernetes).is_on(gate);
        assert!(!on(KubernetesMinor::V1_35, Gate::ConsumableCapacity));
        assert!(on(KubernetesMinor::V1_36, Gate::ConsumableCapacity));
        assert!(!on(KubernetesMinor::V1_36, Gate::DeviceTaintRules));
        assert!(on(KubernetesMinor::V1_37, Gate::DeviceTaintRules));
        assert!(!on(KubernetesMinor::V1_37, Gate::ListTypeAttributes));
    }

    #[test]
    fn a_gate_that_a_release_does_not_know_stays_off() {
        let asked = Gates::NONE.with(Gate::DerivedAttributes, true).with(Gate::AdminAccess, true);
        let compat = Compat::with_gates(KubernetesMinor::V1_36, asked);
        assert_eq!(compat.gates.iter().collect::<Vec<_>>(), [Gate::AdminAccess]);
    }

    #[test]
    fn servers_are_mapped_to_the_nearest_known_release() {
        assert_eq!(KubernetesMinor::from_minor(33), None);
        assert_eq!(KubernetesMinor::from_minor(36), Some(KubernetesMinor::V1_36));
        assert_eq!(KubernetesMinor::from_minor(41), Some(KubernetesMinor::NEWEST));
    }
}
