//! Errors of the SDK become ours.

use std::error::Error as StdError;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use cloudprovider_aws::service::Error;
use cloudprovider_aws::service::error::{Kind, classify};

/// What a failed call means. The text has what the service or the SDK says, never the request.
pub(crate) fn fault<E>(call: &'static str, error: &SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    let code = error.code().map(str::to_owned);
    let status = error.raw_response().map(|response| response.status().as_u16());
    let message = match (error.message(), status) {
        (Some(message), _) => message.to_owned(),
        // What came is nothing that the service sends, such as a page of a proxy.
        (None, Some(status)) if code.is_none() => format!("HTTP status {status} without a code that is known"),
        (None, _) => chain(error),
    };
    Error { call, kind: classify(code.as_deref(), status), code, message }
}

/// An answer that lacks what it must have.
pub(crate) fn incomplete(call: &'static str, missing: &str) -> Error {
    Error { call, kind: Kind::ServerFault, code: None, message: format!("the answer has no {missing}") }
}

/// A request that cannot be made, or an answer that cannot be used.
pub(crate) fn unusable(call: &'static str, why: impl Into<String>) -> Error {
    Error { call, kind: Kind::Other, code: None, message: why.into() }
}

/// An error and what caused it.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::body::SdkBody;
    use aws_smithy_types::error::ErrorMetadata;

    use super::*;

    fn response(status: u16) -> HttpResponse {
        HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::empty())
    }

    #[test]
    fn a_code_and_its_words_are_kept() {
        let said = ErrorMetadata::builder().code("RequestLimitExceeded").message("slow down").build();
        let error = fault("ec2:CreateFleet", &SdkError::service_error(said, response(503)));
        assert_eq!(error.kind, Kind::Throttled);
        assert_eq!(error.to_string(), "ec2:CreateFleet: RequestLimitExceeded: slow down");
    }

    #[test]
    fn an_answer_that_is_no_answer_of_the_service_is_told_by_its_status() {
        let error = fault("ec2:X", &SdkError::service_error(ErrorMetadata::builder().build(), response(500)));
        assert_eq!(error.kind, Kind::ServerFault);
        assert_eq!(error.to_string(), "ec2:X: HTTP status 500 without a code that is known");
    }

    #[test]
    fn without_an_answer_every_cause_is_told() {
        let refused = ConnectorError::io("connection refused".into());
        let error = fault("ec2:X", &SdkError::<ErrorMetadata, _>::dispatch_failure(refused));
        assert_eq!((error.kind, error.code), (Kind::ServerFault, None));
        assert!(error.message.contains("connection refused"), "{}", error.message);
    }
}
