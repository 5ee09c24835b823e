//! What a call to the API server that failed means, and how it is told.

use std::error::Error;

use kube::core::Status;

/// An error with its causes. The API server's own words stand for what kube makes of them: that has the whole answer,
/// as Rust shows it, twice.
pub(crate) fn in_words(failure: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in failure.chain() {
        words.push(cause_in_words(cause));
        if matches!(cause.downcast_ref(), Some(kube::Error::Api(_))) {
            break;
        }
    }
    words.join(": ")
}

/// [`in_words`] of an error alone, without its causes.
pub(crate) fn cause_in_words(cause: &(dyn Error + 'static)) -> String {
    match cause.downcast_ref() {
        // What a proxy answers in the API server's place may have no text.
        Some(kube::Error::Api(status)) if status.message.is_empty() => {
            format!("an answer without text, code {}", status.code)
        }
        Some(kube::Error::Api(status)) => status.message.clone(),
        Some(_) | None => cause.to_string(),
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
        let failed = |message: &str, code| {
            let status = Status::failure(message, "Reason").with_code(code);
            anyhow::Error::new(kube::Error::Api(Box::new(status))).context("cannot drain")
        };
        assert_eq!(in_words(&failed("nodes \"a\" not found", 404)), "cannot drain: nodes \"a\" not found");
        assert_eq!(in_words(&failed("", 503)), "cannot drain: an answer without text, code 503");
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
