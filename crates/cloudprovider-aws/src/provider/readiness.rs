//! What an EC2NodeClass says of itself. Pure.

use cloudprovider::NodeClassReadiness;
use serde_json::Value;

/// The reason of a readiness that nobody has told yet.
pub(super) const UNKNOWN: &str = "NodeClassReadinessUnknown";

/// What an EC2NodeClass says of itself.
pub(super) fn readiness(object: &Value) -> NodeClassReadiness {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if !text("/metadata/deletionTimestamp").is_empty() {
        return NodeClassReadiness::Terminating;
    }
    let name = text("/metadata/name");
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.and_then(|all| all.iter().find(|it| it["type"] == api::conditions::READY));
    let not_ready = |reason: &str, message: String| NodeClassReadiness::NotReady { reason: reason.to_owned(), message };
    let Some(ready) = ready else {
        return not_ready(UNKNOWN, format!("EC2NodeClass {name} has not been looked at yet"));
    };
    let of = |field: &str| ready.get(field).and_then(Value::as_str).unwrap_or_default();
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let observed = ready.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    match of("status") {
        api::conditions::TRUE if observed == generation => NodeClassReadiness::Ready,
        api::conditions::TRUE => {
            let message = format!("EC2NodeClass {name} was changed, and its status is still that of before");
            not_ready("NotReconciled", message)
        }
        api::conditions::FALSE => not_ready(of("reason"), of("message").to_owned()),
        _ => not_ready(UNKNOWN, of("message").to_owned()),
    }
}
