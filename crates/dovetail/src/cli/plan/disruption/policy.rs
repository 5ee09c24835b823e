//! One side of `--disruption --compare`: the input as it is, other settings, or other NodePools.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use scheduling::Snapshot;
use scheduling::snapshot::expiration::ExpirationPolicy;
use scheduling::snapshot::fleet::ConsolidationPolicy;

use crate::cli::plan::duration;
use provisioner::options::price;

/// The word for the input as it is.
const CURRENT: &str = "current";

/// What is planned with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Policy {
    /// The input as it is, with these settings.
    Settings(Vec<Setting>),
    /// NodePools and NodeOverlays from there stand in place of the input's; other objects come besides.
    Files(PathBuf),
}

/// A setting of the form `name=value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    /// `--eviction-price`, in nano-dollars.
    EvictionPrice(i64),
    /// `--consolidation-horizon`.
    ConsolidationHorizon(model::DurationMs),
    /// `--device-restart-time`.
    DeviceRestart(model::DurationMs),
    /// `--spot-to-spot-consolidation`.
    SpotToSpot(bool),
    /// `--expiration-policy`.
    Expiration(ExpirationPolicy),
    /// `spec.disruption.consolidationPolicy` of every NodePool.
    Consolidation(ConsolidationPolicy),
}

/// The names of settings, as people write them.
const NAMES: [&str; 6] = [
    "eviction-price",
    "consolidation-horizon",
    "device-restart-time",
    "spot-to-spot-consolidation",
    "expiration-policy",
    "consolidation-policy",
];

impl Policy {
    /// Reads a side: `current`, settings with commas between them, or a path.
    ///
    /// # Errors
    /// If a setting has no known name or a value that it cannot have.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        if text == CURRENT {
            return Ok(Self::Settings(Vec::new()));
        }
        let is_name = |name: &str| !name.is_empty() && name.chars().all(|it| it.is_ascii_lowercase() || it == '-');
        if !text.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            return Ok(Self::Files(PathBuf::from(text)));
        }
        text.split(',').map(setting).collect::<anyhow::Result<_>>().map(Self::Settings)
    }

    /// Changes what the input says.
    pub(super) fn apply(&self, snapshot: &mut Snapshot) {
        let Self::Settings(settings) = self else { return };
        let options = &mut snapshot.options.disruption;
        for setting in settings {
            match *setting {
                Setting::EvictionPrice(price) => options.eviction_price_nano_usd = price,
                Setting::ConsolidationHorizon(horizon) => options.consolidation_horizon = horizon,
                Setting::DeviceRestart(time) => options.device_restart = time,
                Setting::SpotToSpot(is_on) => options.spot_to_spot_consolidation = is_on,
                Setting::Expiration(policy) => options.expiration.policy = policy,
                Setting::Consolidation(policy) => {
                    if let Some(fleet) = &mut snapshot.fleet {
                        let pools = &mut Arc::make_mut(fleet).pools;
                        pools.values_mut().for_each(|pool| pool.policy = policy);
                    }
                }
            }
        }
    }
}

fn setting(text: &str) -> anyhow::Result<Setting> {
    let Some((name, value)) = text.split_once('=') else {
        bail!("--compare: {text:?} is not of the form name=value");
    };
    let what = || format!("--compare: {name}={value}");
    let setting = match name {
        "eviction-price" => Setting::EvictionPrice(price(value).map_err(anyhow::Error::msg).with_context(what)?.0),
        "consolidation-horizon" => Setting::ConsolidationHorizon(time(value).with_context(what)?),
        "device-restart-time" => Setting::DeviceRestart(time(value).with_context(what)?),
        "spot-to-spot-consolidation" => {
            Setting::SpotToSpot(one_of(value, &[("true", true), ("false", false)]).with_context(what)?)
        }
        "expiration-policy" => {
            let policies = [("Forceful", ExpirationPolicy::Forceful), ("Graceful", ExpirationPolicy::Graceful)];
            Setting::Expiration(one_of(value, &policies).with_context(what)?)
        }
        "consolidation-policy" => {
            let policies = [
                ("WhenEmpty", ConsolidationPolicy::WhenEmpty),
                ("WhenEmptyOrUnderutilized", ConsolidationPolicy::WhenEmptyOrUnderutilized),
                ("Balanced", ConsolidationPolicy::Balanced),
            ];
            Setting::Consolidation(one_of(value, &policies).with_context(what)?)
        }
        _ => bail!("--compare: no setting is called {name:?}; there are {}", NAMES.join(", ")),
    };
    Ok(setting)
}

fn time(value: &str) -> anyhow::Result<model::DurationMs> {
    duration(value).map_err(anyhow::Error::msg)
}

fn one_of<T: Copy>(value: &str, known: &[(&str, T)]) -> anyhow::Result<T> {
    match known.iter().find(|(name, _)| *name == value) {
        Some((_, known)) => Ok(*known),
        None => {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            bail!("it can be {}", names.join(" or "))
        }
    }
}

#[cfg(test)]
mod tests {
    use model::DurationMs;

    use super::*;

    #[test]
    fn a_side_is_the_input_settings_or_files() {
        let settings = Policy::Settings;
        let cases = [
            ("current", settings(vec![])),
            ("eviction-price=0.02", settings(vec![Setting::EvictionPrice(20_000_000)])),
            (
                "consolidation-horizon=90m,spot-to-spot-consolidation=true,consolidation-policy=Balanced",
                settings(vec![
                    Setting::ConsolidationHorizon(DurationMs::from_seconds(5400)),
                    Setting::SpotToSpot(true),
                    Setting::Consolidation(ConsolidationPolicy::Balanced),
                ]),
            ),
            ("device-restart-time=90s", settings(vec![Setting::DeviceRestart(DurationMs::from_seconds(90))])),
            ("expiration-policy=Graceful", settings(vec![Setting::Expiration(ExpirationPolicy::Graceful)])),
            ("pools.yaml", Policy::Files("pools.yaml".into())),
            ("./a=b.yaml", Policy::Files("./a=b.yaml".into())),
            ("./current", Policy::Files("./current".into())),
        ];
        for (text, expected) in cases {
            assert_eq!(Policy::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_setting_that_cannot_be_is_named() {
        let cases = [
            ("evict-price=1", "no setting is called \"evict-price\"; there are eviction-price, consolidation-horizon,"),
            ("eviction-price=cheap", "--compare: eviction-price=cheap: "),
            ("eviction-price=0,", "\"\" is not of the form name=value"),
            ("consolidation-horizon=soon", "--compare: consolidation-horizon=soon: "),
            (
                "consolidation-policy=Never",
                "consolidation-policy=Never: it can be WhenEmpty or WhenEmptyOrUnderutilized or Balanced",
            ),
            ("spot-to-spot-consolidation=yes", "spot-to-spot-consolidation=yes: it can be true or false"),
        ];
        for (text, expected) in cases {
            let told = format!("{:#}", Policy::parse(text).unwrap_err());
            assert!(told.contains(expected), "{text}: {told}");
        }
    }
}
