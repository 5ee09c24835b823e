//! What the provider shows of itself.

use cloudprovider::CapacityType;
use cloudprovider::events::{Event, Events};
use futures::future::join_all;
use prometheus_client::registry::Registry;

use super::launches::{create, of_type, offering, on_demand, one_of};
use super::offerings::Offerings;
use super::*;
use crate::background::interruptions::Watch;
use crate::telemetry::Metrics;

/// Keeps the reasons of what is told.
#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl Events for Told {
    fn publish(&self, event: Event) {
        self.0.lock().push(event.reason);
    }
}

/// The lines that begin so, in order, without that beginning.
fn shown(registry: &Registry, start: &str) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let mut lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// With metrics that are shown.
fn world() -> (World, Registry, Arc<Told>) {
    let (mut world, mut registry, told) = (World::new(), Registry::default(), Arc::<Told>::default());
    let metrics = Metrics::register(registry.sub_registry_with_prefix("karpenter"));
    world.telemetry = Telemetry { metrics, events: Arc::clone(&told) as _ };
    (world, registry, told)
}

#[test]
fn launches_are_measured_and_their_errors_counted_once_for_each_request() {
    let (world, registry, _) = world();
    world.cloud.set_stock(&offering("m5.large", "a", CapacityType::OnDemand), Some(2));
    let in_zone = || vec![of_type("m5.large"), one_of(kubernetes::ZONE, &["us-east-1a"]), on_demand()];
    let claims: Vec<_> = (0..5).map(|index| world.claim(&format!("claim-{index}"), in_zone())).collect();
    let made = world.clock.run(async {
        let provider = world.provider();
        join_all(claims.iter().map(|claim| create(&provider, claim))).await
    });
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 2);
    assert_eq!(
        shown(&registry, "karpenter_cloudprovider_instance_launch_failures_total"),
        [
            "{zone=\"us-east-1a\",zone_id=\"use1-az1\",capacity_type=\"on-demand\",reason=\"InsufficientInstanceCapacity\"} 1"
        ]
    );
    let of_batches = "{batcher=\"create_fleet\"} ";
    assert_eq!(
        shown(&registry, "karpenter_cloudprovider_batcher_batch_size_sum"),
        [format!("{of_batches}5.0")],
        "one request asked for all"
    );
    assert_eq!(
        shown(&registry, "karpenter_cloudprovider_batcher_batch_time_seconds_count"),
        [format!("{of_batches}1")]
    );
    let user_data = world.cloud.user_data(&world.alive()[0]).unwrap().len();
    let of_class = format!("{{nodeclass=\"default\"}} {user_data}");
    assert_eq!(shown(&registry, "karpenter_ec2nodeclasses_userdata_bytes"), [of_class]);
}

#[test]
fn offerings_are_shown_with_price_and_whether_they_can_be_launched() {
    let (world, mut registry, _) = world();
    let provider = world.provider();
    registry.sub_registry_with_prefix("karpenter").register_collector(Box::new(Offerings(provider.clone())));
    let available = "karpenter_cloudprovider_instance_type_offering_available";
    assert_eq!(shown(&registry, &format!("{available}{{")), [] as [&str; 0], "no node class has asked");
    world.clock.run(async {
        let types = provider.instance_types(&node_pool()).await.unwrap();
        let all: usize = types.types.iter().map(|it| it.offerings.len()).sum();
        assert_eq!(shown(&registry, &format!("{available}{{")).len(), all);
    });
    let of_m5 = "{instance_type=\"m5.large\",capacity_type=\"on-demand\",zone=\"us-east-1a\"} ";
    assert_eq!(shown(&registry, &format!("{available}{of_m5}")), ["1.0"]);
    let price = "karpenter_cloudprovider_instance_type_offering_price_estimate";
    assert_eq!(shown(&registry, &format!("{price}{of_m5}")), ["0.096"]);
    let cores = "karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m5.large\"} ";
    assert_eq!(shown(&registry, cores), ["2.0"]);
    let memory = "karpenter_cloudprovider_instance_type_memory_bytes{instance_type=\"m5.large\"} ";
    assert_eq!(shown(&registry, memory).len(), 1);
}

#[test]
fn a_machine_that_cannot_be_ended_and_one_that_fails_its_checks_are_counted() {
    let (world, registry, told) = world();
    let mut claim = world.claim("one", vec![of_type("m5.large"), one_of(kubernetes::ZONE, &["us-east-1b"])]);
    world.clock.run(async {
        let provider = world.provider();
        let made = create(&provider, &claim).await.unwrap();
        claim.status.get_or_insert_default().provider_id = made.provider_id.to_string();
        world.objects.set_claim(claim.clone());
        world.cloud.impair(&world.alive()[0]);
        tokio::time::sleep(Duration::from_secs(120)).await;
        let watch = Watch {
            provider: provider.clone(),
            ec2: Arc::new(world.cloud.clone()),
            queue: None,
            objects: Arc::new(world.objects.clone()),
            clock: world.clock.clock(),
        };
        watch.check_health().await.unwrap();
        claim.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        world.objects.set_claim(claim.clone());
        watch.check_health().await.unwrap();
        world.cloud.refuse("ec2:TerminateInstances", "InternalError", "no");
        provider.delete(&made.provider_id).await.unwrap_err();
    });
    assert_eq!(*told.0.lock(), ["InstanceUnhealthy", "TerminatingOnInterruption"], "of one that goes nothing is told");
    let unhealthy = "karpenter_interruption_instance_status_unhealthy_total{category=\"instance_status\"} ";
    assert_eq!(shown(&registry, unhealthy), ["1"]);
    let failures = "karpenter_cloudprovider_instance_termination_failures_total";
    assert_eq!(shown(&registry, failures), ["{zone=\"us-east-1b\",zone_id=\"use1-az2\"} 1"]);
}
