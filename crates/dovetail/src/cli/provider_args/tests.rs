//! The table of tests has a second provider, `fake`, beside kwok.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use cloudprovider::events::NoEvents;
use cloudprovider_plugin::{BuildError, Provider, Registry, Setup};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    provider: ProviderArgs,
}

fn parse(args: &[&str]) -> Result<ProviderArgs, clap::Error> {
    let args = std::iter::once("dovetail").chain(args.iter().copied());
    Cli::try_parse_from(args).map(|cli| cli.provider)
}

fn build(args: &[&str]) -> Result<Provider, BuildError> {
    let args = parse(args).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let setup = Setup {
            client: Client::new(server, "default"),
            clock: Arc::new(|| model::Timestamp(0)),
            namespace: "default".to_owned(),
            options: &args.values,
            reserved_capacity: true,
            metrics: &mut Registry::default(),
            events: Arc::new(NoEvents),
            instance_types: None,
        };
        args.plugin.build(setup).await
    })
}

#[test]
fn without_a_name_it_is_the_first_one_of_the_table() {
    let args = parse(&[]).unwrap();
    let first = providers::all().next().unwrap();
    assert_eq!(args.plugin.declaration().name, first.declaration().name);
    assert_eq!(build(&[]).unwrap().cloud.name(), "kwok");
}

#[test]
fn a_provider_of_the_table_is_made_by_its_name_with_its_own_options() {
    let provider = build(&["--provider=fake", "--fake-only-type=fake-small"]).unwrap();
    assert_eq!(provider.cloud.name(), "fake");
    assert!(provider.background.is_none());
    let refused = build(&["--provider=fake", "--fake-only-type=none"]).unwrap_err();
    assert_eq!(refused.to_string(), "--fake-only-type none");
}

#[test]
fn what_a_provider_declares_is_what_it_is() {
    for plugin in providers::all() {
        let declared = plugin.declaration();
        assert!(declared.node_class_kinds.contains(&declared.default_node_class.kind), "{}", declared.name);
    }
    for name in ["kwok", "fake"] {
        let declared = providers::named(name).unwrap().get().declaration();
        let cloud = build(&["--provider", declared.name]).unwrap().cloud;
        assert_eq!(cloud.name(), declared.name);
        assert_eq!(cloud.node_class_kinds(), declared.node_class_kinds);
    }
}

#[test]
fn a_provider_that_this_build_cannot_run_says_so_after_its_options_were_checked() {
    let refused = |args: &[&str]| {
        let error = build(args).unwrap_err();
        format!("{error}: {}", std::error::Error::source(&error).unwrap())
    };
    assert_eq!(
        refused(&["--provider=aws"]),
        "options of the provider aws: --cluster-name: the cluster's name is required"
    );
    assert_eq!(
        refused(&["--provider=aws", "--cluster-name=c"]),
        "provider aws: this build plans for EC2 offline only, it cannot launch machines there"
    );
}

#[test]
fn an_unknown_name_is_refused_with_those_that_are_known() {
    let refused = parse(&["--provider=nowhere"]).unwrap_err().to_string();
    assert!(refused.contains("'nowhere'") && refused.contains("[possible values: kwok, aws, fake]"), "{refused}");
}

#[test]
fn flags_of_another_provider_are_refused() {
    let refused = parse(&["--provider=fake", "--kwok-read-faults"]).unwrap_err().to_string();
    assert!(refused.contains("--kwok-read-faults is of provider kwok, not fake"), "{refused}");
}

#[test]
fn values_come_by_kind_and_empty_ones_not_at_all() {
    let values = parse(&["--instance-types-file-path=a.json", "--kwok-read-faults", "--kwok-instances-namespace="]);
    let values = values.unwrap().values;
    assert_eq!(values.path("instance-types-file-path"), Some(Path::new("a.json")));
    assert!(values.is_on("kwok-read-faults"));
    assert_eq!(values.text("kwok-instances-namespace"), None);
    assert!(!parse(&["--kwok-read-faults=F"]).unwrap().values.is_on("kwok-read-faults"));
}
