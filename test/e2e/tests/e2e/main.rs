//! Behaviour on a real control plane. A module a subject; a test's name is the claim it proves.
//!
//! Most tests share one control plane with one controller and keep apart by namespace, label and taint. Those that kill
//! something, or look at the whole cluster, boot their own.

mod aws;
mod bad_input;
mod capacity_buffers;
mod crashes;
mod crds;
mod default_spread;
mod devices;
mod disruption;
mod dra;
mod dra_operations;
mod driver_daemons;
mod driver_drain;
mod driver_rollout;
mod faults;
mod fidelity;
mod gangs;
mod idle_claims;
mod launch;
mod leader_election;
mod min_values;
mod node_claim_conditions;
mod node_repair;
mod other_pods;
mod outages;
mod overlays;
mod planning;
mod pod_deletion_cost;
mod rights;
mod runaway;
mod serving;
mod silence;
mod snapshot;
mod standalone;
mod static_pools;
mod strays;
mod switching;
mod termination;
mod unfinished_commands;

use e2e::cluster;
