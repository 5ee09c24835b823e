//! An expression that computes an attribute of a device for constraints (KEP-6080).
//!
//! It sees what selectors see and gives what an attribute can hold: a string, an integer, a bool, a version, or a list
//! of one of them. It is compiled and limited like a selector that is stored.

use std::sync::Arc;

use super::cost::estimate;
use super::device::DeviceView;
use super::environment::{Environment, Purpose};
use super::error::{CompileError, EvalError};
use super::eval::evaluate;
use super::plan::Plan;
use super::selector::{MAX_COST, compile};
use super::value::Value;
use dra_types::{AttributeValue, Compat};

/// A derived attribute's expression, compiled. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DerivedExpression {
    plan: Arc<Plan>,
}

impl DerivedExpression {
    /// Compiles a text that is stored in a claim, for a release and its gates, as the scheduler does.
    ///
    /// # Errors
    /// The text is refused, with its place and the reason.
    pub fn compile(text: &str, compat: &Compat) -> Result<Self, CompileError> {
        let environment = Environment { purpose: Purpose::Attribute, ..Environment::stored(compat) };
        compile(text, environment).map(|(_, plan)| Self { plan })
    }

    /// The greatest cost that an evaluation can have, of a text that is compiled as the API server does when a claim
    /// with it is created; `u64::MAX` if it has no bound.
    ///
    /// # Errors
    /// The text is refused, with its place and the reason.
    pub fn cost_of_new(text: &str, compat: &Compat) -> Result<u64, CompileError> {
        let environment = Environment { purpose: Purpose::Attribute, ..Environment::new(compat) };
        compile(text, environment).map(|(checked, _)| estimate(&checked))
    }

    /// The attribute's value on a device.
    ///
    /// # Errors
    /// The evaluation failed, or gave what no attribute can hold; upstream ends the pod's scheduling with it.
    pub fn evaluate(&self, device: &DeviceView) -> Result<AttributeValue, EvalError> {
        let device = device.device.as_ref().map_err(Clone::clone)?;
        let (outcome, _) = evaluate(&self.plan, device, MAX_COST);
        attribute(&outcome?)
    }
}

fn attribute(value: &Value) -> Result<AttributeValue, EvalError> {
    let Value::List(list) = value else {
        return match value {
            Value::Bool(value) => Ok(AttributeValue::Bool(*value)),
            Value::Int(value) => Ok(AttributeValue::Int(*value)),
            Value::String(text) => Ok(AttributeValue::String(Arc::clone(text))),
            Value::Semver(version) => Ok(AttributeValue::Version(version.to_string().into())),
            other => Err(EvalError::NotAnAttribute(other.type_name())),
        };
    };
    // The first element decides of which kind the list is.
    match list.first() {
        None => Ok(AttributeValue::Strings([].into())),
        Some(Value::Bool(_)) => elements(list, |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
        .map(AttributeValue::Bools),
        Some(Value::Int(_)) => elements(list, |value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        })
        .map(AttributeValue::Ints),
        Some(Value::String(_)) => elements(list, |value| match value {
            Value::String(text) => Some(Arc::clone(text)),
            _ => None,
        })
        .map(AttributeValue::Strings),
        Some(Value::Semver(_)) => elements(list, |value| match value {
            Value::Semver(version) => Some(version.to_string().into()),
            _ => None,
        })
        .map(AttributeValue::Versions),
        Some(other) => Err(EvalError::NotAnAttribute(other.type_name())),
    }
}

fn elements<T>(list: &[Value], read: impl Fn(&Value) -> Option<T>) -> Result<Arc<[T]>, EvalError> {
    list.iter().map(|value| read(value).ok_or_else(|| EvalError::NotAnAttribute(value.type_name()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_types::{Device, Gates, KubernetesMinor};

    /// The value on a device with three attributes of driver `d`, or why there is none.
    fn derive(text: &str) -> Result<AttributeValue, String> {
        let compat = Compat::with_gates(KubernetesMinor::V1_37, Gates::all(KubernetesMinor::V1_37));
        let device = Device::from_json(&serde_json::json!({
            "name": "a",
            "attributes": {"root": {"string": "pci0000:01"}, "numa": {"int": 3}, "driver": {"version": "1.2.3+x"}},
        }))
        .unwrap();
        let view = DeviceView::new(&"d".into(), &device, &compat);
        let expression = DerivedExpression::compile(text, &compat).map_err(|error| error.to_string())?;
        expression.evaluate(&view).map_err(|error| error.to_string())
    }

    #[test]
    fn an_expression_gives_whatever_an_attribute_can_hold() {
        let cases = [
            ("device.attributes['d'].numa / 2", AttributeValue::Int(1)),
            ("device.attributes['d'].numa == 3", AttributeValue::Bool(true)),
            ("device.attributes['d'].root.split(':')[0]", AttributeValue::String("pci0000".into())),
            ("device.attributes['d'].driver", AttributeValue::Version("1.2.3+x".into())),
            ("semver('2.0.0')", AttributeValue::Version("2.0.0".into())),
            ("[1, 2]", AttributeValue::Ints([1, 2].into())),
            ("[true]", AttributeValue::Bools([true].into())),
            ("['a', device.driver]", AttributeValue::Strings(["a".into(), "d".into()].into())),
            ("[semver('1.0.0')]", AttributeValue::Versions(["1.0.0".into()].into())),
            ("[]", AttributeValue::Strings([].into())),
        ];
        for (text, expected) in cases {
            assert_eq!(derive(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_no_attribute_can_hold_is_refused_before_or_while_it_is_evaluated() {
        for (text, expected) in [
            ("1.5", "must evaluate to a string, integer, boolean, semver or a list of one of them, not double"),
            ("quantity('1')", "not kubernetes.Quantity"),
            ("{'a': 1}", "not map"),
            ("[[1]]", "not list"),
            ("dyn(1.5)", "CEL result of type double cannot be the value of an attribute"),
            ("[dyn(1), dyn('a')]", "CEL result of type string cannot be the value of an attribute"),
            ("device.attributes['d'].absent", "no such key: absent"),
            ("device.name", "undefined field 'name'"),
        ] {
            let error = derive(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_selector_is_still_a_verdict() {
        let compat = Compat::new(KubernetesMinor::V1_37);
        assert!(super::super::Selector::compile("1", &compat).is_err());
    }
}
