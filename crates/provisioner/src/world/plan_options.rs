//! What of the controller's options the planner is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloudprovider::ProviderConfig;
use model::PriceNanoUsdPerHour;
use scheduling::snapshot::eviction::DeletionCosts;
use scheduling::snapshot::{DisruptionOptions, Options as PlanOptions, UnsupportedStorage};

use crate::options::Options;

/// Who writes deletion costs of pods.
pub(crate) fn deletion_costs(options: &Options) -> DeletionCosts {
    match options.feature_gates.pod_deletion_cost_management {
        true => DeletionCosts::Ours,
        false => DeletionCosts::OfUsers,
    }
}

/// What of the controller's options changes a plan, and what was [learned](crate::world::displacement) beside them.
pub(crate) fn plan_options(
    options: &Options,
    provider: &ProviderConfig,
    displacement_price: PriceNanoUsdPerHour,
) -> PlanOptions {
    let names = |set: &BTreeSet<String>| set.iter().map(|name| Arc::from(name.as_str())).collect();
    PlanOptions {
        scheduler_names: options.scheduler_names.clone(),
        unsupported_storage: UnsupportedStorage {
            provisioners: names(&provider.unsupported_provisioners),
            topology_keys: names(&provider.unsupported_topology_keys),
        },
        min_values: options.min_values_policy,
        preference_policy: options.preference_policy,
        preference_price: options.preference_price,
        prioritized_list_policy: options.prioritized_list_policy,
        node_price: options.node_price,
        ignore_dra_requests: options.ignore_dra_requests,
        disruption: DisruptionOptions {
            // The price of an eviction, not of an hour of it.
            eviction_price_nano_usd: options.eviction_price.0,
            consolidation_horizon: options.consolidation_horizon,
            device_restart: options.device_restart_time,
            displacement_price,
            spot_to_spot_consolidation: options.feature_gates.spot_to_spot_consolidation,
            terminate_first_drift: options.feature_gates.terminate_first_drift,
            terminate_first_repair: options.feature_gates.terminate_first_repair,
            expiration: options.expiration,
            deletion_costs: deletion_costs(options),
        },
        ..PlanOptions::default()
    }
}
