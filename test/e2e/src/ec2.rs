//! EC2 in memory for the controller under test, and what makes its machines Nodes.

mod joiner;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use cloudprovider::InstanceType;
use cloudprovider::declaration::CatalogueInput;
use cloudprovider_aws::catalogue::{self, instance_types, zones_of};
use cloudprovider_aws::memory::wire::{Front, VARIABLE};
use cloudprovider_aws::memory::{Cloud, REGION, sample};
use cloudprovider_aws::node_class::spec::{InstanceMatchCriteria, Tags};
use cloudprovider_aws::node_class::status::ReservationType;
use cloudprovider_aws::pricing::Prices;
use cloudprovider_aws::service::ec2::{CapacityReservation, Image, Subnet, TypeInZone};
use kube::Client;
use model::{PriceNanoUsdPerHour, Timestamp};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::joiner::Joiner;
use crate::{controller, install, objects};

/// The cluster's name in tests, by which everything in EC2 is tagged.
pub const CLUSTER: &str = "e2e";
/// Zones of the region beside those that [`sample`] has subnets in.
const MORE_ZONES: [(char, u8); 3] = [('d', 4), ('e', 5), ('f', 6)];

/// A type of Trainium that EC2 sells in other regions. Here it is sold too, for pods that want Neuron devices.
pub const TRN2: &str = "trn2.48xlarge";
/// Its price here, in dollars an hour. EC2 lists none for this region.
const TRN2_PRICE: &str = "35.76";
const TRN2_ZONES: [char; 3] = ['a', 'b', 'c'];

/// What EC2 sells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sold {
    /// The few types of [`sample`], in three zones: plans are quick.
    Few,
    /// All that EC2 sells in the region, in its six zones, and [`TRN2`].
    All,
}

/// EC2, for as long as this is held.
pub struct Ec2 {
    /// What there is.
    pub cloud: Cloud,
    /// Where the controller reaches it.
    pub front: Front,
    cluster: String,
    joining: JoinHandle<()>,
}

impl Ec2 {
    /// Begins to turn its machines into Nodes of a client's cluster, which is called [`CLUSTER`] in EC2.
    ///
    /// # Errors
    /// If nothing can be served.
    pub async fn start(client: Client) -> Result<Self> {
        Self::of_cluster(client, CLUSTER, Sold::Few).await
    }

    /// With all that is sold, for a cluster of that name in EC2.
    ///
    /// # Errors
    /// If nothing can be served.
    pub async fn of_cluster(client: Client, cluster: &str, sold: Sold) -> Result<Self> {
        let cloud = cloud(cluster, sold);
        let front = Front::start(cloud.clone()).await?;
        let joiner = Joiner::new(cloud.clone(), client, cluster);
        Ok(Self { cloud, front, cluster: cluster.to_owned(), joining: tokio::spawn(joiner.run()) })
    }

    /// A controller that launches its machines here.
    #[must_use]
    pub fn controller(&self, options: controller::Options) -> controller::Options {
        options
            .env("CLOUD_PROVIDER", "aws")
            .env("CLUSTER_NAME", &self.cluster)
            .env("INTERRUPTION_QUEUE", "interruptions")
            .env("EC2_RECORDS_NAMESPACE", install::EC2_RECORDS_NAMESPACE)
            .env(VARIABLE, &self.front.address())
    }

    /// Sells types in the three zones that [`sample`] has subnets in.
    pub fn sell(&self, types: &[&str]) {
        let zones = || TRN2_ZONES.map(zone).into_iter();
        let sold = types.iter().flat_map(|name| zones().map(|zone| in_zone(name, zone)));
        self.cloud.add_types(sold);
        price_trn2(&self.cloud);
    }

    /// Gives spot machines of all types a price: 31 % of that on demand in a type's first zone, 3 % more in each next.
    pub fn discount_spot(&self) {
        let prices = Prices::built_in();
        let zones = |name: &str| (0..).zip(zones_of(name, REGION));
        let spot = |(name, price): (&String, &PriceNanoUsdPerHour)| {
            let (name, hundredth) = (name.clone(), price.0 / 100);
            let priced = zones(&name)
                .map(move |(place, zone)| (name.clone(), zone, PriceNanoUsdPerHour(hundredth * (31 + 3 * place))));
            priced.collect::<Vec<_>>()
        };
        self.cloud.set_spot_prices(prices.on_demand().iter().flat_map(spot));
    }

    /// Adds an image for a processor in EC2's words, newer than those that are there; node classes find it by tag.
    pub fn add_image(&self, id: &str, architecture: &str) {
        let image = Image {
            id: id.to_owned(),
            name: format!("eks-node-newer-{architecture}"),
            architecture: architecture.to_owned(),
            created_at: Timestamp::from_seconds(1_700_000_000),
            deprecated_at: None,
        };
        self.cloud.add_image(image, self.tags());
    }

    /// Reserves machines of a type in a zone; node classes find the reservation by tag.
    pub fn reserve(&self, id: &str, (instance_type, zone): (&str, &str), remaining: u32) {
        let reservation = CapacityReservation {
            id: id.to_owned(),
            owner_id: "123456789012".to_owned(),
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            match_criteria: InstanceMatchCriteria::Targeted,
            reservation_type: ReservationType::Default,
            interruptible: false,
            remaining,
            ends_at: None,
        };
        self.cloud.add_reservation(reservation, self.tags());
    }

    fn tags(&self) -> Tags {
        [("cluster".to_owned(), self.cluster.clone())].into()
    }
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.joining.abort();
    }
}

/// The name of a zone.
#[must_use]
pub fn zone(letter: char) -> String {
    format!("{REGION}{letter}")
}

fn in_zone(instance_type: &str, zone: String) -> TypeInZone {
    TypeInZone { instance_type: instance_type.to_owned(), zone }
}

/// EC2 by the time of day, for a cluster of that name, with nobody who turns its machines into Nodes.
#[must_use]
pub fn cloud(cluster: &str, sold: Sold) -> Cloud {
    let cloud = sample(cluster, Arc::new(now));
    if sold == Sold::All {
        sell_all(&cloud, cluster);
    }
    cloud
}

/// Adds what [`Sold::All`] has beside the sample.
fn sell_all(cloud: &Cloud, cluster: &str) {
    for (letter, number) in MORE_ZONES {
        let subnet = Subnet {
            id: format!("subnet-{letter}"),
            zone: zone(letter),
            zone_id: format!("use1-az{number}"),
            free_addresses: 4000,
        };
        cloud.add_subnet(subnet, [("cluster".to_owned(), cluster.to_owned())].into());
    }
    let sold = |name: &String| zones_of(name, REGION).into_iter().map(|zone| in_zone(name, zone)).collect::<Vec<_>>();
    cloud.add_types(instance_types().keys().flat_map(sold));
    cloud.add_types(TRN2_ZONES.map(|letter| in_zone(TRN2, zone(letter))));
    price_trn2(cloud);
}

fn price_trn2(cloud: &Cloud) {
    let price = PriceNanoUsdPerHour::parse(TRN2_PRICE).expect("it is a decimal");
    cloud.set_on_demand_prices([(TRN2.to_owned(), price)]);
}

/// The types of [`Sold::All`] as a node class changes them.
///
/// # Errors
/// If the node class cannot be used.
pub fn types_of(class: &Value) -> Result<Vec<InstanceType>> {
    let zones: Vec<_> = TRN2_ZONES.map(zone).into();
    let more = json!({ "zones": { (TRN2): zones }, "onDemand": { (TRN2): TRN2_PRICE } });
    let input = CatalogueInput { instance_types: Some(more.to_string()), ..CatalogueInput::default() };
    Ok(catalogue::of_node_class(&input, class)?.instance_types)
}

/// A node class that finds all that [`sample`] has by tag.
#[must_use]
pub fn node_class(name: &str) -> Value {
    let by_tag = json!([{ "tags": { "cluster": CLUSTER } }]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": name },
        "spec": {
            "role": "nodes", "amiFamily": "AL2023",
            "amiSelectorTerms": by_tag, "subnetSelectorTerms": by_tag, "securityGroupSelectorTerms": by_tag,
        },
    })
}

/// A NodePool of a test with the node class of that name.
#[must_use]
pub fn node_pool(name: &str, class: &str) -> Value {
    let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class });
    objects::with(objects::node_pool(name), json!({ "spec": { "template": { "spec": { "nodeClassRef": class } } } }))
}

/// The time of day.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
