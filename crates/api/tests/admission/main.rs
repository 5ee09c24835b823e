//! Offline admission gives the verdicts of a real API server with Karpenter's own CRDs.

mod crd_cases;
mod dynamic_resources;
mod nodepools;
