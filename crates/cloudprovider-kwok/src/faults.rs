//! Faults on demand, so that tests can see what the autoscaler makes of a cloud that misbehaves.
//!
//! A test in the same process hands a [`Faults`] to the provider. A test of the running controller writes the same as
//! JSON into key `faults.json` of the ConfigMap [`CONFIG_MAP`] in the provider's namespace; with
//! [`crate::Options::read_faults`] it is read anew before each launch and each list, and every second by the loop that
//! makes Nodes, so that what is written before a call is seen by it. Without that option the ConfigMap means nothing.
//!
//! ```json
//! {"noCapacity": [{"zone": "test-zone-a"}],
//!  "failedLaunch": [{"nodePool": "general", "message": "quota"}],
//!  "slowLaunchMs": 2000,
//!  "lostAnswer": [{}],
//!  "neverRegisters": [{"nodeClaim": "general-x7k2p"}],
//!  "neverReady": [{"instanceType": "c-1x-amd64-linux"}],
//!  "vanished": [{"nodeClaim": "general-x7k2p"}],
//!  "listLagMs": 5000,
//!  "drivers": [{"target": {"zone": "test-zone-a"}, "driver": "gpu.example.com", "publishes": "partly",
//!                "delayMs": 500}]}
//! ```
//!
//! What is left out in a target fits everything; a fault is over as soon as it is no longer listed.

use serde::Deserialize;

/// The name of the ConfigMap.
pub const CONFIG_MAP: &str = "dovetail-kwok-faults";

/// The key in it.
pub const CONFIG_MAP_KEY: &str = "faults.json";

/// The longest that a launch or list can be made to take.
pub const MAX_DELAY_MS: u64 = 10 * 60 * 1000;

/// What goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Faults {
    /// Offerings that have no machines. They are found out at launch, like in a cloud.
    pub no_capacity: Vec<Target>,
    /// Launches that are refused.
    pub failed_launch: Vec<FailedLaunch>,
    /// How much longer each launch takes.
    pub slow_launch_ms: u64,
    /// Launches that happen, but whose caller is told that they failed, every time.
    pub lost_answer: Vec<Target>,
    /// Machines that never get a Node.
    pub never_registers: Vec<Target>,
    /// Machines whose Node never becomes ready.
    pub never_ready: Vec<Target>,
    /// Machines that are taken away without a word: the record goes, and the kubelet stops.
    pub vanished: Vec<Target>,
    /// How long the list does not show a new machine.
    pub list_lag_ms: u64,
    /// DRA drivers that publish something else than the machine has. The first that fits a driver counts.
    pub drivers: Vec<DriverFault>,
}

/// What a machine's DRA driver does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriverFault {
    /// The machines.
    pub target: Target,
    /// The driver; every driver if none is given.
    pub driver: Option<String>,
    /// What it publishes.
    pub publishes: Publishing,
    /// How long after the Node it publishes.
    pub delay_ms: u64,
}

/// What a DRA driver publishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Publishing {
    /// What the machine has.
    #[default]
    Right,
    /// Nothing.
    Never,
    /// A pool of which a slice is missing.
    Partly,
    /// Without the last device, and with another model in place of the first.
    Wrong,
}

/// Which machines a fault hits: those that have everything that is given here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Target {
    /// The NodePool.
    pub node_pool: Option<String>,
    /// The NodeClaim.
    pub node_claim: Option<String>,
    /// The instance type.
    pub instance_type: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// `spot` or `on-demand`.
    pub capacity_type: Option<String>,
}

/// A launch that is refused before a machine was chosen; only NodePool and NodeClaim tell which.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FailedLaunch {
    /// The NodePool.
    pub node_pool: Option<String>,
    /// The NodeClaim.
    pub node_claim: Option<String>,
    /// What the cloud says.
    pub message: String,
}

/// A machine, or what would become one.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Its NodePool, if it has one.
    pub node_pool: Option<&'a str>,
    /// Its NodeClaim.
    pub node_claim: &'a str,
    /// Its type.
    pub instance_type: &'a str,
    /// Where it is.
    pub zone: &'a str,
    /// The terms it was bought under.
    pub capacity_type: &'a str,
}

fn fits(wanted: &Option<String>, value: Option<&str>) -> bool {
    wanted.as_deref().is_none_or(|wanted| Some(wanted) == value)
}

impl Target {
    /// Whether the fault hits that machine.
    pub fn hits(&self, machine: &Machine<'_>) -> bool {
        fits(&self.node_pool, machine.node_pool)
            && fits(&self.node_claim, Some(machine.node_claim))
            && fits(&self.instance_type, Some(machine.instance_type))
            && fits(&self.zone, Some(machine.zone))
            && fits(&self.capacity_type, Some(machine.capacity_type))
    }

    /// Whether one of the targets is hit.
    pub fn any(targets: &[Self], machine: &Machine<'_>) -> bool {
        targets.iter().any(|target| target.hits(machine))
    }
}

impl Faults {
    /// Reads the JSON of the ConfigMap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let faults: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (field, delay_ms) in [("slowLaunchMs", faults.slow_launch_ms), ("listLagMs", faults.list_lag_ms)] {
            if delay_ms > MAX_DELAY_MS {
                return Err(format!("{field}: {delay_ms} is more than {MAX_DELAY_MS}"));
            }
        }
        if let Some(fault) = faults.drivers.iter().find(|fault| fault.delay_ms > MAX_DELAY_MS) {
            return Err(format!("drivers: delayMs: {} is more than {MAX_DELAY_MS}", fault.delay_ms));
        }
        Ok(faults)
    }

    /// What that driver of that machine does, if it is not what it should.
    pub fn driver(&self, machine: &Machine<'_>, driver: &str) -> Option<&DriverFault> {
        self.drivers.iter().find(|fault| fault.target.hits(machine) && fits(&fault.driver, Some(driver)))
    }

    /// What a launch for that NodeClaim is refused with, if it is.
    pub fn refusal(&self, node_pool: Option<&str>, node_claim: &str) -> Option<&str> {
        self.failed_launch
            .iter()
            .find(|fault| fits(&fault.node_pool, node_pool) && fits(&fault.node_claim, Some(node_claim)))
            .map(|fault| fault.message.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine<'static> = Machine {
        node_pool: Some("general"),
        node_claim: "general-x7k2p",
        instance_type: "c-1x-amd64-linux",
        zone: "test-zone-a",
        capacity_type: "spot",
    };

    #[test]
    fn a_target_hits_what_has_everything_it_names() {
        let hits = |json: &str| serde_json::from_str::<Target>(json).unwrap().hits(&MACHINE);
        assert!(hits("{}"));
        assert!(hits(r#"{"zone": "test-zone-a", "capacityType": "spot", "nodePool": "general"}"#));
        assert!(!hits(r#"{"zone": "test-zone-a", "capacityType": "on-demand"}"#));
        assert!(!hits(r#"{"nodeClaim": "another"}"#));
        assert!(!Target::any(&[], &MACHINE));
    }

    #[test]
    fn faults_are_read_and_misspelt_or_endless_ones_refused() {
        assert_eq!(Faults::parse("{}").unwrap(), Faults::default());
        // Every key that the user guide has.
        let guide = include_str!("../../../docs/fake-machines.md");
        let keys = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(": "));
        let mut count = 0;
        for (key, kind) in keys {
            let value = if kind.starts_with('[') { "[]" } else { "1" };
            Faults::parse(&format!("{{\"{key}\": {value}}}")).unwrap();
            count += 1;
        }
        assert_eq!(count, 9);
        assert!(Faults::parse(r#"{"neverReadyy": []}"#).unwrap_err().contains("unknown field `neverReadyy`"));
        assert!(Faults::parse(r#"{"noCapacity": [{"az": "a"}]}"#).unwrap_err().contains("unknown field `az`"));
        assert_eq!(Faults::parse(r#"{"listLagMs": 600001}"#).unwrap_err(), "listLagMs: 600001 is more than 600000");
    }

    #[test]
    fn a_refused_launch_says_what_the_cloud_said() {
        let faults = Faults::parse(r#"{"failedLaunch": [{"nodePool": "general", "message": "quota"}]}"#).unwrap();
        assert_eq!(faults.refusal(Some("general"), "x"), Some("quota"));
        assert_eq!(faults.refusal(Some("other"), "x"), None);
        assert_eq!(faults.refusal(None, "x"), None);
    }
}
