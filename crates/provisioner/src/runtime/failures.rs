//! What a call to the API server that failed means, and how it is told.

use kube::core::Status;

/// An error with its causes. The API server's own words stand for what kube makes of them: that has the whole answer,
/// as Rust shows it, twice.
pub(crate) fn in_words(failure: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in failure.chain() {
        if let Some(answer @ kube::Error::Api(_)) = cause.downcast_ref::<kube::Error>() {
            words.push(answer_in_words(answer));
            break;
        }
        words.push(cause.to_string());
    }
    words.join(": ")
}

/// [`in_words`] of an error that nothing was added to.
pub(crate) fn answer_in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether an error says that the object has changed since it was read.
pub(crate) fn is_conflict(failure: &anyhow::Error) -> bool {
    is_answer(failure, 409)
}

/// Whether an error says that the object is gone.
pub(crate) fn is_not_found(failure: &anyhow::Error) -> bool {
    is_answer(failure, 404)
}

fn is_answer(failure: &anyhow::Error, code: u16) -> bool {
    failure.chain().any(|cause| match cause.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => status.code == code,
        Some(_) | None => false,
    })
}

/// Whether the API server refused to create something because the whole namespace goes.
pub(crate) fn is_of_ending_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_api_server_is_told_in_its_own_words() {
        let status = Status::failure("nodes \"a\" not found", "NotFound").with_code(404);
        let failure = anyhow::Error::new(kube::Error::Api(Box::new(status))).context("cannot drain");
        assert_eq!(in_words(&failure), "cannot drain: nodes \"a\" not found");
        assert_eq!(in_words(&anyhow::anyhow!("no luck").context("cannot drain")), "cannot drain: no luck");
    }

    #[test]
    fn that_a_namespace_goes_is_told_by_code_and_cause() {
        let answer = |code: u16, reason: &str| -> Status {
            serde_json::from_value(serde_json::json!({
                "status": "Failure", "code": code, "reason": "Forbidden", "message": "namespace shop is being terminated",
                "details": {"name": "a", "kind": "pods", "causes": [{"reason": reason, "message": "", "field": ""}]},
            }))
            .unwrap()
        };
        assert!(is_of_ending_namespace(&answer(403, "NamespaceTerminating")));
        assert!(!is_of_ending_namespace(&answer(403, "Other")));
        assert!(!is_of_ending_namespace(&answer(429, "NamespaceTerminating")));
    }
}
