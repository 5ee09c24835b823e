//! Logs: one JSON object a line, or text for people, on standard output.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::options::{LogFormat, Options};

/// Our crates beside the provider's; the level given by the user is theirs, everything else logs warnings.
const OURS: [&str; 3] = ["provisioner", "dovetail", "scheduling"];

/// Sends logs where the options say, for the whole process. `provider` is the crate of the provider in use.
///
/// # Errors
/// If the level is neither a level nor a filter, or logging is already set up.
pub fn init(options: &Options, provider: &str) -> anyhow::Result<()> {
    crate::runtime::panics::log_all();
    let filter = filter(&options.log_level, provider)?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer();
    match options.log_format {
        LogFormat::Json => registry.with(layer.json().flatten_event(true).with_current_span(true)).try_init(),
        LogFormat::Text => {
            registry.with(layer.with_target(false).with_ansi(std::io::stdout().is_terminal())).try_init()
        }
    }
    .context("logging is already set up")
}

fn filter(level: &str, provider: &str) -> anyhow::Result<EnvFilter> {
    let directives = match level {
        "debug" | "info" | "warn" | "error" | "trace" => {
            let ours = OURS.into_iter().chain([provider]).map(|name| format!("{name}={level}"));
            let others = if level == "error" { "error" } else { "warn" };
            // Says of each connection to a test server that its certificate is not checked.
            let tls = "kube_client::client::tls=error".to_owned();
            [others.to_owned(), tls].into_iter().chain(ours).collect::<Vec<_>>().join(",")
        }
        other => other.to_owned(),
    };
    EnvFilter::try_new(&directives)
        .with_context(|| format!("--log-level: {level:?} must be debug, info, warn or error, or a filter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_our_own_code_and_a_filter_is_taken_as_it_is() {
        let directives = filter("debug", "cloud").unwrap().to_string();
        let mut directives: Vec<&str> = directives.split(',').collect();
        directives.sort_unstable();
        directives.retain(|directive| !directive.starts_with("kube_client"));
        let ours = ["cloud=debug", "dovetail=debug", "provisioner=debug", "scheduling=debug", "warn"];
        assert_eq!(directives, ours);
        assert_eq!(filter("kube=trace", "cloud").unwrap().to_string(), "kube=trace");
        assert!(filter("a=b=c", "cloud").unwrap_err().to_string().contains("--log-level"));
    }
}
