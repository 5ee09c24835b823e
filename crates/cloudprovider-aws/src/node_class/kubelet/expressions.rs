//! Settings of the kubelet that are computed for each instance type, where the gate `NodeClassCEL` is on.
//!
//! Variables, functions, units and what becomes of an expression that fails are those of `pkg/cel/environment.go` and
//! `pkg/providers/instancetype/types.go` of karpenter-provider-aws 1.15.

use std::collections::BTreeMap;

use api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use cloudprovider::{Overhead, ResourceList};
use k8s_cel::{CompileError, NumberExpression, VariableType, VariableValue, Variables};
use model::Quantity;
use model::quantity::Format;
use serde::{Deserialize, Serialize};

const VARIABLES: Variables = &[
    ("vcpus", VariableType::Int),
    ("memory_mib", VariableType::Int),
    ("default_enis", VariableType::Int),
    ("ips_per_eni", VariableType::Int),
    ("max_pods", VariableType::Int),
    ("instance_type", VariableType::String),
];

/// Processors are reserved in steps of so many thousandths, and memory in steps of so many MiB.
const MILLI_CPU_STEP: i64 = 10;
const MEMORY_MIB_STEP: i64 = 16;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// What an expression is told of an instance type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    /// Its name.
    pub(crate) instance_type: &'a str,
    /// Its processors.
    pub(crate) vcpus: u64,
    /// Its memory, as EC2 says.
    pub(crate) memory_mib: u64,
    /// The network interfaces of its default card.
    pub(crate) default_enis: u64,
    /// The IPv4 addresses of each of them.
    pub(crate) ips_per_eni: u64,
    /// Most pods: for `maxPods` what there would be without it, for what is reserved what there is.
    pub(crate) max_pods: u64,
}

impl Told<'_> {
    fn values(&self) -> [(&'static str, VariableValue); 6] {
        let int = |value: u64| VariableValue::Int(i64::try_from(value).unwrap_or(i64::MAX));
        [
            ("vcpus", int(self.vcpus)),
            ("memory_mib", int(self.memory_mib)),
            ("default_enis", int(self.default_enis)),
            ("ips_per_eni", int(self.ips_per_eni)),
            ("max_pods", int(self.max_pods)),
            ("instance_type", VariableValue::String(self.instance_type.into())),
        ]
    }
}

/// The settings that are expressions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Computed {
    /// Of `maxPods`.
    pub(super) max_pods: Option<NumberExpression>,
    /// Of `kubeReserved`, by resource.
    pub(super) kube_reserved: BTreeMap<String, NumberExpression>,
    /// Of `systemReserved`, by resource.
    pub(super) system_reserved: BTreeMap<String, NumberExpression>,
}

/// What is reserved by expressions on an instance type, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ComputedReserved {
    /// For the kubelet and the container runtime.
    pub kube: BTreeMap<String, String>,
    /// For the system.
    pub system: BTreeMap<String, String>,
}

impl ComputedReserved {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.kube.is_empty() && self.system.is_empty()
    }
}

pub(super) fn compile(text: &str) -> Result<NumberExpression, CompileError> {
    NumberExpression::compile(text, VARIABLES)
}

impl Computed {
    /// Whether no setting is an expression.
    pub(crate) fn is_empty(&self) -> bool {
        self.max_pods.is_none() && self.kube_reserved.is_empty() && self.system_reserved.is_empty()
    }

    /// Most pods; none where that is no expression, or one that fails on this type.
    pub(crate) fn max_pods(&self, told: &Told<'_>) -> Option<u64> {
        max_pods(self.max_pods.as_ref()?, told).ok().map(u64::from)
    }

    /// What is kept for the kubelet and the container runtime. Without the expressions that fail on this type.
    pub(crate) fn kube_reserved(&self, told: &Told<'_>) -> ResourceList {
        amounts(&self.kube_reserved, told)
    }

    /// What is kept for the system. Without the expressions that fail on this type.
    pub(crate) fn system_reserved(&self, told: &Told<'_>) -> ResourceList {
        amounts(&self.system_reserved, told)
    }

    /// The first field whose expression fails, with the reason. The two are told of different numbers of pods.
    pub(crate) fn failure(&self, for_pods: &Told<'_>, for_reserved: &Told<'_>) -> Option<(String, String)> {
        let of_pods = self.max_pods.iter().filter_map(|expression| {
            let failed = max_pods(expression, for_pods).err()?;
            Some(("maxPods".to_owned(), format!("{:?} on {}: {failed}", expression.text(), for_pods.instance_type)))
        });
        let of_reserved = [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)];
        let of_reserved = of_reserved.into_iter().flat_map(|(field, expressions)| {
            expressions.iter().filter_map(move |(resource, expression)| {
                let failed = amount(resource, expression, for_reserved).err()?;
                let on = for_reserved.instance_type;
                Some((format!("{field}[{resource}]"), format!("{:?} on {on}: {failed}", expression.text())))
            })
        });
        of_pods.chain(of_reserved).next()
    }

    /// What an instance type reserves by expressions. One that fails has what the type reserves without it, so that
    /// machines reserve what was planned.
    pub(crate) fn reserved(&self, overhead: &Overhead) -> ComputedReserved {
        let of = |expressions: &BTreeMap<String, NumberExpression>, reserved: &ResourceList| {
            let amounts = expressions.keys().filter_map(|resource| Some((resource.clone(), reserved.get(resource)?)));
            amounts.map(|(resource, amount)| (resource, amount.to_string())).collect()
        };
        ComputedReserved {
            kube: of(&self.kube_reserved, &overhead.kube_reserved),
            system: of(&self.system_reserved, &overhead.system_reserved),
        }
    }
}

fn max_pods(expression: &NumberExpression, told: &Told<'_>) -> Result<u32, String> {
    let number = expression.evaluate(&told.values()).map_err(|error| error.to_string())?;
    let count = i32::try_from(number).ok().and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| format!("{number} is not from 0 to {}", i32::MAX))
}

fn amounts(expressions: &BTreeMap<String, NumberExpression>, told: &Told<'_>) -> ResourceList {
    let amounts = expressions
        .iter()
        .filter_map(|(resource, expression)| Some((resource.clone(), amount(resource, expression, told).ok()?)));
    amounts.collect()
}

/// An expression's result, in the unit of the resource.
fn amount(resource: &str, expression: &NumberExpression, told: &Told<'_>) -> Result<Quantity, String> {
    let number = expression.evaluate(&told.values()).map_err(|error| error.to_string())?;
    if number < 0 {
        return Err(format!("{number} is negative"));
    }
    let up_to = |step: i64| number.checked_add(step - 1).map(|sum| sum / step * step);
    let amount = match resource {
        CPU => up_to(MILLI_CPU_STEP).map(|milli| Quantity::from_milli(milli, Format::DecimalSi)),
        MEMORY => {
            let bytes = up_to(MEMORY_MIB_STEP).and_then(|mebibytes| mebibytes.checked_mul(MIB));
            bytes.and_then(|bytes| Quantity::from_i64(bytes, Format::BinarySi).ok())
        }
        EPHEMERAL_STORAGE => number.checked_mul(GIB).and_then(|bytes| Quantity::from_i64(bytes, Format::BinarySi).ok()),
        _ => Quantity::from_i64(number, Format::DecimalSi).ok(),
    };
    amount.ok_or_else(|| format!("{number} is too large"))
}
