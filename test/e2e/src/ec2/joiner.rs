//! What makes machines of EC2 Nodes: what a kubelet does with what it is told at boot, what the cloud's controller
//! manager adds, and what drivers of devices publish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::labels;
use cloudprovider::InstanceType;
use cloudprovider_aws::devices::publishes_adapters;
use cloudprovider_aws::memory::Cloud;
use cloudprovider_aws::names;
use cloudprovider_aws::provider_id::MachineId;
use cloudprovider_aws::service::ec2::Machine;
use dra_templates::{Expansion, layout};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use model::DurationMs;
use serde_json::{Value, json};

use super::{now, types_of};
use crate::objects;

/// How long after its launch a machine is a Node.
const BOOT: DurationMs = DurationMs(1_000);
/// How often it is looked what was launched.
const LOOK: Duration = Duration::from_millis(200);
const EFA: &str = cloudprovider_aws::labels::resources::EFA;

/// Types by name, as a node class changes them.
type Types = Arc<BTreeMap<String, InstanceType>>;

/// Turns machines into Nodes.
pub(super) struct Joiner {
    cloud: Cloud,
    client: Client,
    cluster: String,
    /// By node class, with what of it they were made from.
    types: BTreeMap<String, (Value, Types)>,
}

impl Joiner {
    pub(super) fn new(cloud: Cloud, client: Client, cluster: &str) -> Self {
        Self { cloud, client, cluster: cluster.to_owned(), types: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        let mut joined = BTreeSet::new();
        loop {
            let alive = self.cloud.alive();
            for machine in &alive {
                if joined.contains(&machine.id) || now().since(machine.launched_at) < BOOT {
                    continue;
                }
                match self.join(machine).await {
                    Ok(()) => drop(joined.insert(machine.id.clone())),
                    // It is tried again; a test that waits for the Node shows this.
                    Err(error) => eprintln!("machine {} cannot join: {error:#}", machine.id),
                }
            }
            let ended: Vec<_> =
                joined.iter().filter(|id| !alive.iter().any(|machine| machine.id == **id)).cloned().collect();
            for id in ended {
                if self.leave(&id).await.is_ok() {
                    joined.remove(&id);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn join(&mut self, machine: &Machine) -> Result<()> {
        let user_data = self.cloud.user_data(&machine.id).context("it is told nothing")?;
        let told = Told::read(&user_data)?;
        ensure!(told.cluster == self.cluster, "it is told to join {}", told.cluster);
        let types = self.types(machine).await?;
        let instance_type = types.get(&machine.instance_type).context("its type is not built in")?;
        let node = node(machine, &told, instance_type);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = match nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => nodes.get(&machine.id).await?,
            node => node?,
        };
        self.publish(machine, &node, instance_type).await
    }

    /// The types as the machine's node class has them: settings of the kubelet, disks, how drivers are set up.
    async fn types(&mut self, machine: &Machine) -> Result<Types> {
        let class = machine.tags.get(names::NODE_CLASS).context("no tag names its node class")?;
        let kind = ApiResource {
            group: names::GROUP.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{}/v1", names::GROUP),
            kind: names::NODE_CLASS_KIND.to_owned(),
            plural: "ec2nodeclasses".to_owned(),
        };
        let object = Api::<DynamicObject>::all_with(self.client.clone(), &kind).get(class).await?;
        let object = serde_json::to_value(object)?;
        // The status changes whenever somebody has looked, and nothing of the types with it.
        let made_from = json!([object["metadata"]["uid"], object["metadata"]["annotations"], object["spec"]]);
        if let Some((_, types)) = self.types.get(class).filter(|(of, _)| *of == made_from) {
            return Ok(Arc::clone(types));
        }
        let types = types_of(&object)?.into_iter().map(|it| (it.name.to_string(), it)).collect();
        let types = Arc::new(types);
        self.types.insert(class.clone(), (made_from, Arc::clone(&types)));
        Ok(types)
    }

    /// What drivers publish of the machine's devices.
    async fn publish(&self, machine: &Machine, node: &Node, instance_type: &InstanceType) -> Result<()> {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let expansion = Expansion::new(&instance_type.dynamic_resources, &|key| labels.get(key).cloned())?;
        let expansion = expansion.with_values(|group| format!("{}-{group}", machine.id));
        let host = layout::Host { node_name: &machine.id, labels: &labels };
        let slices: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<ResourceSlice>(&()));
        for pool in &expansion.pools {
            if machine.efa_count == 0 && publishes_adapters(pool.driver.as_ref()) {
                continue;
            }
            for slice in layout::slices(pool, host)? {
                let owner = json!({
                    "apiVersion": "v1", "kind": "Node", "name": machine.id, "uid": node.metadata.uid,
                    "controller": true,
                });
                let slice = objects::with(slice, json!({ "metadata": { "ownerReferences": [owner] } }));
                match slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                    made => drop(made?),
                }
            }
        }
        Ok(())
    }

    /// The controller manager of the cloud removes Nodes whose machine has ended.
    async fn leave(&self, id: &str) -> Result<()> {
        match Api::<Node>::all(self.client.clone()).delete(id, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            left => left.map(drop).map_err(Into::into),
        }
    }
}

/// The Node that a machine registers, as its kubelet and the cloud's controller manager write it.
fn node(machine: &Machine, told: &Told, instance_type: &InstanceType) -> Value {
    let region = machine.zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let mut all = told.labels.clone();
    let of_machine = [
        (labels::HOSTNAME, machine.id.as_str()),
        (labels::INSTANCE_TYPE, &machine.instance_type),
        (labels::ZONE, &machine.zone),
        (labels::REGION, region),
        (labels::OS, "linux"),
    ];
    all.extend(of_machine.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let architecture = instance_type.requirements.get(labels::ARCH).and_then(|values| values.iter().next().cloned());
    all.extend(architecture.map(|it| (labels::ARCH.to_owned(), it)));
    let attached = |resource: &str| resource != EFA || machine.efa_count > 0;
    let amounts = |list: cloudprovider::ResourceList| -> BTreeMap<String, String> {
        let there = list.into_iter().filter(|(resource, amount)| amount.sign() > 0 && attached(resource));
        let max_pods = (api::resources::PODS.to_owned(), told.max_pods.to_string());
        there.map(|(resource, amount)| (resource, amount.to_string())).chain([max_pods]).collect()
    };
    let provider_id = MachineId { zone: machine.zone.clone(), instance: machine.id.clone() }.to_provider_id();
    json!({
        "apiVersion": "v1", "kind": "Node",
        // kwok plays the kubelets of Nodes with this annotation.
        "metadata": { "name": machine.id, "labels": all, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "spec": { "providerID": provider_id.to_string(), "taints": told.taints },
        "status": {
            "capacity": amounts(instance_type.capacity.clone()), "allocatable": amounts(instance_type.allocatable()),
        },
    })
}

/// What a machine with Amazon Linux 2023 reads in its user data.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    cluster: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    max_pods: u64,
}

impl Told {
    /// nodeadm takes the NodeConfig that comes last.
    fn read(user_data: &str) -> Result<Self> {
        let (_, config) = user_data.rsplit_once("Content-Type: application/node.eks.aws").context("no NodeConfig")?;
        let lines: Vec<&str> = config.lines().take_while(|line| !line.starts_with("--")).collect();
        let config: Value = serde_saphyr::from_str(&lines.join("\n")).context("the NodeConfig is not YAML")?;
        let at = |path: &str| config.pointer(path).cloned().unwrap_or_default();
        let flags = at("/spec/kubelet/flags");
        let flags = flags.as_array().into_iter().flatten().filter_map(Value::as_str);
        let pairs = flags.filter_map(|flag| flag.strip_prefix("--node-labels=")).flat_map(|pairs| pairs.split(','));
        Ok(Self {
            cluster: at("/spec/cluster/name").as_str().context("no cluster")?.to_owned(),
            labels: pairs
                .map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
                .collect::<Option<_>>()
                .context("a label without a value")?,
            taints: serde_json::from_value(at("/spec/kubelet/config/registerWithTaints")).context("taints")?,
            max_pods: at("/spec/kubelet/config/maxPods").as_u64().context("no maxPods")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reads_the_last_node_config() {
        let user_data = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\
                         Content-Type: application/node.eks.aws\n\nspec: {cluster: {name: other}}\n--//\n\
                         Content-Type: application/node.eks.aws\n\n\
                         spec:\n  cluster: {name: e2e}\n  kubelet:\n    flags: [\"--node-labels=a=b,c=\"]\n    \
                         config: {maxPods: 29, registerWithTaints: [{key: k, effect: NoExecute}]}\n--//--\n";
        let told = Told::read(user_data).unwrap();
        assert_eq!(told.cluster, "e2e");
        let labels: Vec<_> = told.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(labels, [("a", "b"), ("c", "")]);
        assert_eq!((told.taints[0].key.as_str(), told.max_pods), ("k", 29));
        assert!(Told::read("MIME-Version: 1.0").is_err());
    }
}
