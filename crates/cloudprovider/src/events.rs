//! Kubernetes events, as controllers and providers tell them. Who writes them to the cluster is behind [`Events`].

use k8s_openapi::api::core::v1::ObjectReference;

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody may have to act.
    Warning,
}

impl Severity {
    /// The event's type, as Kubernetes has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something worth telling about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The object.
    pub regarding: ObjectReference,
    /// How bad it is.
    pub severity: Severity,
    /// In CamelCase: one of [`api::events`], or a provider's own.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// What tells this event from others of its reason.
    pub dedupe: Vec<String>,
}

impl Event {
    /// An event of which each object gets one per reason and dedupe span.
    pub fn new(
        regarding: ObjectReference,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let identity = regarding.uid.clone().filter(|uid| !uid.is_empty()).unwrap_or_else(|| {
            format!(
                "{}/{}/{}",
                regarding.kind.as_deref().unwrap_or_default(),
                regarding.namespace.as_deref().unwrap_or_default(),
                regarding.name.as_deref().unwrap_or_default()
            )
        });
        Self { regarding, severity, reason, message: message.into(), dedupe: vec![identity] }
    }

    /// Tells the event from others by `value` as well.
    #[must_use]
    pub fn with_dedupe(mut self, value: impl Into<String>) -> Self {
        self.dedupe.push(value.into());
        self
    }
}

/// Takes events. Telling one never waits and never fails; one that repeats another of late may be dropped.
pub trait Events: Send + Sync {
    /// Tells an event.
    fn publish(&self, event: Event);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn publish(&self, _: Event) {}
}
