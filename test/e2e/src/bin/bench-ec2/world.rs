//! An EC2 in memory with a node class that is ready, and the provider on it.

use std::sync::Arc;

use anyhow::Result;
use api::{NodeClaim, NodePool};
use cloudprovider::{CapacityType, CloudProvider, InstanceType, Offering};
use cloudprovider_aws::catalogue::instance_types;
use cloudprovider_aws::instance_types::settings::MachineOptions;
use cloudprovider_aws::memory::{Cloud, Objects, REGION};
use cloudprovider_aws::names;
use cloudprovider_aws::pricing::Prices;
use cloudprovider_aws::provider::{Ec2CloudProvider, Setup};
use cloudprovider_aws::telemetry::Telemetry;
use cloudprovider_aws::user_data;
use e2e::ec2::{self, Sold};
use model::PriceNanoUsdPerHour;
use serde_json::{Value, json};

const CLASS: &str = "default";
/// Of the types that claims are for.
const CPUS: u32 = 4;

pub(super) struct World {
    pub(super) cloud: Cloud,
    objects: Objects,
}

impl World {
    pub(super) fn new() -> Self {
        let objects = Objects::default();
        objects.set_class(class());
        Self { cloud: ec2::cloud(ec2::CLUSTER, Sold::All), objects }
    }

    /// The types that claims are for, by kind: of one size, and open on demand to the node class.
    ///
    /// # Errors
    /// If the provider has none.
    pub(super) async fn types(&self, provider: &Ec2CloudProvider) -> Result<Vec<String>> {
        let known = instance_types();
        let is_of_size = |name: &str| known.get(name).is_some_and(|info| info.v_cpu_info.default_vcpus == CPUS);
        let all = provider.instance_types(&node_pool()).await?;
        let on_demand = |it: &Offering| it.launchable() && it.capacity_type == CapacityType::OnDemand;
        let is_open = |it: &InstanceType| it.offerings.iter().any(on_demand);
        Ok(all.types.iter().filter(|it| is_of_size(&it.name) && is_open(it)).map(|it| it.name.to_string()).collect())
    }

    pub(super) fn provider(&self) -> Ec2CloudProvider {
        Ec2CloudProvider::new(Setup {
            ec2: Arc::new(self.cloud.clone()),
            objects: Arc::new(self.objects.clone()),
            cluster: user_data::Cluster {
                name: ec2::CLUSTER.to_owned(),
                endpoint: "https://bench.example.com".to_owned(),
                ca_bundle: Some("Y2E=".to_owned()),
                service_cidr: Some("10.100.0.0/16".to_owned()),
                dns_ip: None,
            },
            region: REGION.to_owned(),
            machines: MachineOptions::default(),
            clock: Arc::new(ec2::now),
            seed: 1,
            telemetry: Telemetry::default(),
        })
    }

    /// Lets everything cost a little more than it did the round before.
    pub(super) fn change_prices(&self, round: usize) {
        let more = i64::try_from(round).unwrap_or(0) + 1;
        let prices = Prices::built_in();
        let dearer = prices.on_demand().iter().map(|(name, price)| (name.clone(), PriceNanoUsdPerHour(price.0 + more)));
        self.cloud.set_on_demand_prices(dearer);
    }

    /// A NodeClaim that wants a type.
    ///
    /// # Errors
    /// If it is not one.
    pub(super) fn claim(&self, index: u64, name: &str) -> Result<NodeClaim> {
        let requirement = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": format!("claim-{index}"), "uid": format!("uid-{index}"),
                "labels": { (api::labels::NODEPOOL): "default" },
            },
            "spec": {
                "requirements": [
                    requirement(api::labels::INSTANCE_TYPE, name),
                    requirement(api::labels::CAPACITY_TYPE, "on-demand"),
                ],
                "resources": { "requests": { "cpu": "1" } },
                "nodeClassRef": reference(),
            },
        }))?;
        self.objects.set_claim(claim.clone());
        Ok(claim)
    }
}

fn reference() -> Value {
    json!({ "group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": CLASS })
}

/// A NodePool of the node class.
pub(super) fn node_pool() -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": { "template": { "spec": { "requirements": [], "nodeClassRef": reference() } } },
    }))
    .expect("it has the form of a NodePool")
}

/// The node class as the controller leaves it.
fn class() -> Value {
    let subnets: Vec<Value> = ('a'..='f')
        .zip(1..)
        .map(|(letter, number)| {
            json!({ "id": format!("subnet-{letter}"), "zone": ec2::zone(letter), "zoneID": format!("use1-az{number}") })
        })
        .collect();
    let image = |id: &str, architecture: &str| {
        let requirement = json!({ "key": api::labels::ARCH, "operator": "In", "values": [architecture] });
        json!({ "id": id, "name": "eks-node", "requirements": [requirement] })
    };
    let mut class = ec2::node_class(CLASS);
    class["metadata"]["uid"] = json!("uid-of-class");
    class["metadata"]["generation"] = json!(1);
    class["status"] = json!({
        "subnets": subnets,
        "securityGroups": [{ "id": "sg-1", "name": "nodes" }],
        "amis": [image("ami-amd64", "amd64"), image("ami-arm64", "arm64")],
        "instanceProfile": "nodes",
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    class
}
