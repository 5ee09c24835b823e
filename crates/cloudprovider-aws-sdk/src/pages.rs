//! Pages become a list.

use std::error::Error as StdError;

use aws_smithy_async::future::pagination_stream::PaginationStream;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use cloudprovider_aws::service::Error;

use crate::fault::{fault, unusable};

/// Most pages of one answer: far more than any answer has, and an end to a service that always has a next one.
const MOST_PAGES: usize = 1000;

/// All pages of an answer.
///
/// # Errors
/// If a page cannot be had, or there is no end to them.
pub(crate) async fn all<O, E>(
    call: &'static str,
    mut pages: PaginationStream<Result<O, SdkError<E, HttpResponse>>>,
) -> Result<Vec<O>, Error>
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        if found.len() == MOST_PAGES {
            return Err(unusable(call, format!("the answer has more than {MOST_PAGES} pages")));
        }
        found.push(page.map_err(|error| fault(call, &error))?);
    }
    Ok(found)
}
