//! What the provider writes down about a machine, and the ConfigMap it is written in.
//!
//! There is no cloud behind this provider, so the ConfigMap **is** the machine: it is written before the Node, outlives
//! the controller, and its name follows from NodeClaim and token, so that the API server lets one launch only succeed.
//! It holds everything that the Node will be made of; the NodeClaim is not asked again.

use crate::names;
use std::collections::BTreeMap;

use api::{DynamicResources, QuantityString};
use cloudprovider::instance_type::{resources_from_api, resources_to_api};
use cloudprovider::{CapacityType, Instance, InstanceState, ResourceList};
use k8s_openapi::api::core::v1::{ConfigMap, Taint};
use kube::core::ObjectMeta;
use model::{InstanceTypeName, NodeClaimName, NodeName, PriceNanoUsdPerHour, ProviderId, Timestamp, Uid};
use serde::{Deserialize, Serialize};

/// What every provider id of this provider begins with.
pub const PROVIDER_ID_PREFIX: &str = "kwok://";

/// What every ConfigMap's name begins with; the Node's name follows.
const NAME_PREFIX: &str = "kwok-instance-";

/// Selects the ConfigMaps of all instances.
pub const SELECTOR: &str = "app.kubernetes.io/component=kwok-instance";
const COMPONENT_LABEL: (&str, &str) = ("app.kubernetes.io/component", "kwok-instance");

/// The longest name that is also a label's value, which a hostname must be.
const MAX_NODE_NAME_LEN: usize = 63;
const SUFFIX_LEN: usize = 5;

/// How far a machine has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Launched; it has no Node yet.
    Booting,
    /// Its Node was created. It is not created again: kubelets do not put back a Node that somebody deleted.
    Running,
    /// Its end was asked for.
    Terminating,
}

impl State {
    const ALL: [Self; 3] = [Self::Booting, Self::Running, Self::Terminating];

    fn as_str(self) -> &'static str {
        match self {
            Self::Booting => "Booting",
            Self::Running => "Running",
            Self::Terminating => "Terminating",
        }
    }
}

/// What the Node is made of, as far as the machine decides it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeTemplate {
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// Labels that the provider vouches for, a subset of `labels`.
    pub provider_labels: BTreeMap<String, String>,
    /// Annotations besides kwok's.
    pub annotations: BTreeMap<String, String>,
    /// Taints that the kubelet registers with.
    pub taints: Vec<Taint>,
    /// Amounts as the API has them.
    pub capacity: BTreeMap<String, QuantityString>,
    /// Amounts as the API has them.
    pub allocatable: BTreeMap<String, QuantityString>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its Node's name, whether there is a Node or not.
    pub node_name: NodeName,
    /// The token it was launched with.
    pub token: Uid,
    /// The NodeClaim it was launched for.
    pub claim_name: NodeClaimName,
    /// Its type.
    pub instance_type: InstanceTypeName,
    /// Where it is.
    pub zone: String,
    /// The terms it was bought under.
    pub capacity_type: CapacityType,
    /// What it costs.
    pub price: PriceNanoUsdPerHour,
    /// When it was launched.
    pub created_at: Timestamp,
    /// When it gets its Node.
    pub register_at: Timestamp,
    /// How far it has come.
    pub state: State,
    /// What its Node is made of.
    pub node: NodeTemplate,
    /// What DRA drivers will find on it.
    pub devices: DynamicResources,
    /// The version of the ConfigMap it was read from.
    pub resource_version: Option<String>,
}

/// Why a ConfigMap is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ConfigMap {name}: data.{key}: {reason}")]
pub struct Error {
    /// The ConfigMap.
    pub name: String,
    /// Where in it.
    pub key: &'static str,
    /// What is wrong there.
    pub reason: String,
}

/// Why a NodeClaim cannot have a machine of this provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("token {0:?} is not a label value, so it cannot be recorded")]
pub struct InvalidToken(pub Uid);

/// The name of the Node of the machine that the token stands for: the NodeClaim's, and something that tells it from the
/// machine of another NodeClaim of the same name.
///
/// # Errors
/// If the token could not be a label's value. UIDs can.
pub fn node_name(claim_name: &NodeClaimName, token: &Uid) -> Result<NodeName, InvalidToken> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if token.is_empty() || token.len() > 63 || !token.bytes().all(allowed) {
        return Err(InvalidToken(token.clone()));
    }
    let end = claim_name.len().min(MAX_NODE_NAME_LEN - SUFFIX_LEN - 1);
    let stem = claim_name.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    Ok(NodeName::from(format!("{stem}-{}", suffix(token))))
}

/// Five letters and digits that depend on every byte of the token: FNV-1a, then MurmurHash3's finalizer, since the last
/// bytes would hardly reach the high bits.
fn suffix(token: &Uid) -> String {
    let hash = token
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    let hash = hash ^ (hash >> 33);
    // Five bits each.
    (0..SUFFIX_LEN)
        .map(|place| match (hash >> (59 - 5 * place)) as u8 & 31 {
            letter @ 0..26 => char::from(b'a' + letter),
            digit => char::from(b'2' + (digit - 26)),
        })
        .collect()
}

/// The name of the ConfigMap of the machine with that Node name.
pub fn config_map_name(node_name: &str) -> String {
    format!("{NAME_PREFIX}{node_name}")
}

/// The Node's name in a provider id of ours.
pub fn node_name_of(provider_id: &ProviderId) -> Option<&str> {
    provider_id.strip_prefix(PROVIDER_ID_PREFIX).filter(|name| !name.is_empty())
}

impl Record {
    /// Its provider id.
    pub fn provider_id(&self) -> ProviderId {
        ProviderId::from(format!("{PROVIDER_ID_PREFIX}{}", self.node_name))
    }

    /// The name of its ConfigMap.
    pub fn config_map_name(&self) -> String {
        config_map_name(&self.node_name)
    }

    /// The machine as the provider's callers see it.
    ///
    /// # Errors
    /// If the amounts are no quantities.
    pub fn to_instance(&self) -> Result<Instance, Error> {
        let amounts = |list| {
            resources_from_api(list).map_err(|error| Error {
                name: self.config_map_name(),
                key: "node",
                reason: error.to_string(),
            })
        };
        Ok(Instance {
            provider_id: self.provider_id(),
            token: Some(self.token.clone()),
            claim_name: Some(self.claim_name.clone()),
            labels: self.node.provider_labels.clone(),
            annotations: BTreeMap::new(),
            image_id: None,
            capacity: amounts(&self.node.capacity)?,
            allocatable: amounts(&self.node.allocatable)?,
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            capacity_type: self.capacity_type,
            created_at: self.created_at,
            state: match self.state {
                State::Booting | State::Running => InstanceState::Running,
                State::Terminating => InstanceState::Terminating,
            },
        })
    }

    /// The ConfigMap.
    pub fn to_config_map(&self, namespace: &str) -> ConfigMap {
        let node = serde_json::to_string(&self.node).expect("text, lists and maps with text keys are JSON");
        let devices = serde_json::to_string(&self.devices).expect("text, lists and maps with text keys are JSON");
        let data = [
            (key::TOKEN, self.token.to_string()),
            (key::NODE_CLAIM, self.claim_name.to_string()),
            (key::PROVIDER_ID, self.provider_id().to_string()),
            (key::INSTANCE_TYPE, self.instance_type.to_string()),
            (key::ZONE, self.zone.clone()),
            (key::CAPACITY_TYPE, self.capacity_type.to_string()),
            (key::PRICE, self.price.0.to_string()),
            (key::CREATED_AT, self.created_at.to_string()),
            (key::REGISTER_AT, self.register_at.to_string()),
            (key::STATE, self.state.as_str().to_owned()),
            (key::NODE, node),
            (key::DEVICES, devices),
        ];
        let labels =
            [COMPONENT_LABEL, ("app.kubernetes.io/managed-by", "dovetail"), (names::KWOK_INSTANCE_TOKEN, &self.token)];
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.config_map_name()),
                namespace: Some(namespace.to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                resource_version: self.resource_version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ConfigMap::default()
        }
    }

    /// Reads a ConfigMap that [`Self::to_config_map`] wrote.
    ///
    /// # Errors
    /// The first key that is missing or makes no sense.
    pub fn from_config_map(config_map: &ConfigMap) -> Result<Self, Error> {
        let reader = Reader { config_map };
        let provider_id = ProviderId::from(reader.text(key::PROVIDER_ID)?);
        let node_name = node_name_of(&provider_id)
            .filter(|node_name| config_map.metadata.name.as_deref() == Some(&config_map_name(node_name)))
            .ok_or_else(|| reader.error(key::PROVIDER_ID, format!("{provider_id:?} does not belong to this name")))?;
        let capacity_type = reader.text(key::CAPACITY_TYPE)?;
        let state = reader.text(key::STATE)?;
        Ok(Self {
            node_name: NodeName::from(node_name),
            token: Uid::from(reader.text(key::TOKEN)?),
            claim_name: NodeClaimName::from(reader.text(key::NODE_CLAIM)?),
            instance_type: InstanceTypeName::from(reader.text(key::INSTANCE_TYPE)?),
            zone: reader.text(key::ZONE)?.to_owned(),
            capacity_type: CapacityType::parse(capacity_type)
                .ok_or_else(|| reader.error(key::CAPACITY_TYPE, format!("unknown capacity type {capacity_type:?}")))?,
            price: PriceNanoUsdPerHour(reader.parsed(key::PRICE, |text| text.parse::<i64>())?),
            created_at: reader.parsed(key::CREATED_AT, Timestamp::parse)?,
            register_at: reader.parsed(key::REGISTER_AT, Timestamp::parse)?,
            state: State::ALL
                .into_iter()
                .find(|known| known.as_str() == state)
                .ok_or_else(|| reader.error(key::STATE, format!("unknown state {state:?}")))?,
            node: reader.parsed(key::NODE, |text| serde_json::from_str(text))?,
            devices: match reader.text(key::DEVICES) {
                Ok(_) => reader.parsed(key::DEVICES, |text| serde_json::from_str(text))?,
                // A record from before there were devices.
                Err(_) => DynamicResources::default(),
            },
            resource_version: config_map.metadata.resource_version.clone(),
        })
    }
}

/// Amounts in the API's spelling.
pub fn amounts(list: &ResourceList) -> BTreeMap<String, QuantityString> {
    resources_to_api(list)
}

mod key {
    pub(super) const TOKEN: &str = "token";
    pub(super) const NODE_CLAIM: &str = "nodeClaim";
    pub(super) const PROVIDER_ID: &str = "providerID";
    pub(super) const INSTANCE_TYPE: &str = "instanceType";
    pub(super) const ZONE: &str = "zone";
    pub(super) const CAPACITY_TYPE: &str = "capacityType";
    pub(super) const PRICE: &str = "priceNanoUsdPerHour";
    pub(super) const CREATED_AT: &str = "createdAt";
    pub(super) const REGISTER_AT: &str = "registerAt";
    pub(super) const STATE: &str = "state";
    pub(super) const NODE: &str = "node";
    pub(super) const DEVICES: &str = "devices";
}

struct Reader<'a> {
    config_map: &'a ConfigMap,
}

impl<'a> Reader<'a> {
    fn error(&self, key: &'static str, reason: impl ToString) -> Error {
        let name = self.config_map.metadata.name.clone().unwrap_or_default();
        Error { name, key, reason: reason.to_string() }
    }

    fn text(&self, key: &'static str) -> Result<&'a str, Error> {
        let data = self.config_map.data.as_ref();
        let text = data.and_then(|data| data.get(key)).filter(|text| !text.is_empty());
        text.map(String::as_str).ok_or_else(|| self.error(key, "is missing"))
    }

    fn parsed<T, E: ToString>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, Error> {
        parse(self.text(key)?).map_err(|error| self.error(key, error))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> Record {
        let claim_name = NodeClaimName::from("general-x7k2p");
        let token = Uid::from("6f0b4c1e-8a68-4b7f-9a3d-0c8b1d0f5a11");
        Record {
            node_name: node_name(&claim_name, &token).unwrap(),
            token,
            claim_name,
            instance_type: InstanceTypeName::from("c-1x-amd64-linux"),
            zone: "test-zone-a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            price: PriceNanoUsdPerHour(27_147_484),
            created_at: Timestamp(1_700_000_000_123),
            register_at: Timestamp(1_700_000_005_123),
            state: State::Booting,
            node: NodeTemplate {
                labels: [("a".to_owned(), "b".to_owned())].into(),
                provider_labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                taints: vec![api::taints::unregistered()],
                capacity: [("cpu".to_owned(), QuantityString::from("1"))].into(),
                allocatable: [("cpu".to_owned(), QuantityString::from("900m"))].into(),
            },
            devices: DynamicResources::default(),
            resource_version: Some("7".to_owned()),
        }
    }

    #[test]
    fn a_record_survives_its_config_map() {
        let devices: DynamicResources = serde_json::from_value(serde_json::json!({"resourceSliceTemplates": [
            {"metadata": {"name": "t"}, "spec": {"driver": "gpu.example.com", "devices": [{"name": "gpu-0"}]}},
        ]}))
        .unwrap();
        for state in State::ALL {
            let record = Record { state, devices: devices.clone(), ..record() };
            let config_map = record.to_config_map("kube-system");
            assert_eq!(Record::from_config_map(&config_map).unwrap(), record);
        }
    }

    #[test]
    fn a_config_map_that_is_no_record_is_an_error_that_names_the_key() {
        let spoiled = |key: &str, value: Option<&str>| {
            let mut config_map = record().to_config_map("kube-system");
            let data = config_map.data.as_mut().unwrap();
            match value {
                Some(value) => data.insert(key.to_owned(), value.to_owned()),
                None => data.remove(key),
            };
            Record::from_config_map(&config_map).unwrap_err().to_string()
        };
        let name = record().config_map_name();
        assert_eq!(spoiled("token", None), format!("ConfigMap {name}: data.token: is missing"));
        assert_eq!(spoiled("state", Some("Odd")), format!("ConfigMap {name}: data.state: unknown state \"Odd\""));
        for (key, value) in [
            ("providerID", "aws:///x/i-1"),
            ("providerID", "kwok://another"),
            ("capacityType", "free"),
            ("priceNanoUsdPerHour", "0.1"),
            ("createdAt", "yesterday"),
            ("node", "{}"),
            ("devices", r#"{"templates": []}"#),
        ] {
            let error = spoiled(key, Some(value));
            assert!(error.starts_with(&format!("ConfigMap {name}: data.{key}: ")), "{error}");
        }
    }

    #[test]
    fn node_names_follow_from_claim_and_token_and_are_label_values() {
        let name = |claim: &str, token: &str| node_name(&claim.into(), &token.into()).unwrap().to_string();
        let first = name("general-x7k2p", "6f0b4c1e-8a68-4b7f-9a3d-0c8b1d0f5a11");
        assert!(first.starts_with("general-x7k2p-"), "{first}");
        assert_eq!(first, name("general-x7k2p", "6f0b4c1e-8a68-4b7f-9a3d-0c8b1d0f5a11"));
        assert_ne!(first, name("general-x7k2p", "6f0b4c1e-8a68-4b7f-9a3d-0c8b1d0f5a12"));
        let long = name(&format!("{}.{}", "a".repeat(56), "b".repeat(100)), "t");
        assert_eq!(long.len(), 56 + 1 + SUFFIX_LEN, "{long}");
        assert!(node_name(&"c".into(), &"no/label".into()).is_err());
        assert!(node_name(&"c".into(), &"".into()).is_err());
    }

    #[test]
    fn only_our_provider_ids_have_a_node_name() {
        assert_eq!(node_name_of(&"kwok://n-1".into()), Some("n-1"));
        assert_eq!(node_name_of(&"kwok://".into()), None);
        assert_eq!(node_name_of(&"aws:///zone/i-1".into()), None);
    }
}
