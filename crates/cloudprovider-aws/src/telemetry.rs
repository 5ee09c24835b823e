//! What the provider tells of itself: metrics by Karpenter's names, and events.

pub mod events;
pub mod metrics;

use std::sync::Arc;

use cloudprovider::events::{Events, NoEvents};

pub use self::metrics::Metrics;

/// Where it is told.
#[derive(Clone)]
pub struct Telemetry {
    /// Counts and measures.
    pub metrics: Metrics,
    /// Takes events.
    pub events: Arc<dyn Events>,
}

impl Default for Telemetry {
    /// One that nobody looks at.
    fn default() -> Self {
        Self { metrics: Metrics::default(), events: Arc::new(NoEvents) }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}
