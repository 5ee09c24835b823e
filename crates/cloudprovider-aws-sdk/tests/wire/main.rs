//! The adapter on the wire: the SDK against `test/moto/serve.py`, which `cargo xtask test --stage aws` starts.
//!
//! Its state is shared, so tests run one after another, and each has names of its own.

mod discovery;
mod launch;
mod others;
mod server;
mod trouble;

use cloudprovider::options::{OptionValue, OptionValues};
use cloudprovider_aws::options::Options;
use cloudprovider_aws::service::{ConnectError, Connector, Services};
use cloudprovider_aws_sdk::Sdk;

/// The services, found as the controller finds them: by the variables that the stage has set.
async fn connect(more: &[(&'static str, &str)]) -> Result<Services, ConnectError> {
    let mut values = OptionValues::default();
    for (flag, text) in [("cluster-name", "c")].iter().chain(more) {
        values.set(flag, OptionValue::Text((*text).to_owned()));
    }
    Sdk.connect(&Options::new(&values).unwrap()).await
}

async fn services() -> Services {
    connect(&[]).await.unwrap()
}
