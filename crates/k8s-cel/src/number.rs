//! An expression over variables that gives a number.
//!
//! Karpenter's EC2NodeClass takes such expressions for settings of the kubelet, computed for each instance type
//! (`pkg/cel/environment.go` of karpenter-provider-aws 1.15): CEL's standard library, with `min` and `max` of two
//! numbers. Length, nesting and cost are limited as a selector's are, which upstream's are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::environment::{Environment, Variables};
use super::error::{CompileError, EvalError};
use super::eval::evaluate;
use super::plan::Plan;
use super::selector::{MAX_COST, compile};
use super::value::{Map, Value};

/// An expression for a number, compiled. Cheap to clone. Two are equal if their texts are.
#[derive(Debug, Clone)]
pub struct NumberExpression {
    text: Arc<str>,
    plan: Arc<Plan>,
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableValue {
    /// A whole number.
    Int(i64),
    /// A text.
    String(Arc<str>),
}

impl NumberExpression {
    /// Compiles a text over variables.
    ///
    /// # Errors
    /// The text is refused, with its place and the reason.
    pub fn compile(text: &str, variables: Variables) -> Result<Self, CompileError> {
        compile(text, Environment::number(variables)).map(|(_, plan)| Self { text: text.into(), plan })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number, without its fraction. A variable that has no value is an error only where it is looked at.
    ///
    /// # Errors
    /// The evaluation failed, or what it gave is no number that 64 bits hold.
    pub fn evaluate(&self, values: &[(&'static str, VariableValue)]) -> Result<i64, EvalError> {
        let entries: BTreeMap<Arc<str>, Value> = values
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    VariableValue::Int(value) => Value::Int(*value),
                    VariableValue::String(text) => Value::String(Arc::clone(text)),
                };
                (Arc::from(*name), value)
            })
            .collect();
        let (outcome, _) = evaluate(&self.plan, &Value::Map(Arc::new(Map::text(entries))), MAX_COST);
        match outcome? {
            Value::Int(number) => Ok(number),
            Value::Double(number) => whole(number).ok_or_else(|| EvalError::NotANumber(number.to_string().into())),
            other => Err(EvalError::NotANumber(other.type_name().into())),
        }
    }
}

impl PartialEq for NumberExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NumberExpression {}

/// A double without its fraction; none where 64 bits do not hold it.
fn whole(number: f64) -> Option<i64> {
    // 2⁶³ is a double, and the first that is too large.
    const END: f64 = 9_223_372_036_854_775_808.0;
    (-END..END).contains(&number).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::super::environment::VariableType;
    use super::*;

    const VARIABLES: Variables =
        &[("vcpus", VariableType::Int), ("memory_mib", VariableType::Int), ("instance_type", VariableType::String)];

    fn number(text: &str) -> Result<i64, String> {
        let values = [
            ("vcpus", VariableValue::Int(2)),
            ("memory_mib", VariableValue::Int(8192)),
            ("instance_type", VariableValue::String("m5.large".into())),
        ];
        let expression = NumberExpression::compile(text, VARIABLES).map_err(|error| error.to_string())?;
        expression.evaluate(&values).map_err(|error| error.to_string())
    }

    #[test]
    fn an_expression_gives_a_whole_number() {
        for (text, expected) in [
            ("110", 110),
            ("vcpus * 30", 60),
            (".vcpus + 1", 3),
            ("memory_mib / 100", 81),
            ("double(vcpus) * 1.4", 2),
            ("-1.9", -1),
            ("max(3, 7)", 7),
            ("max(3.9, 7.9)", 7),
            ("max(3, 7.9)", 7),
            ("max(7.9, 3)", 7),
            ("min(3, 7)", 3),
            ("min(3.9, 7.9)", 3),
            ("min(3, 7.9)", 3),
            ("min(7.9, 3)", 3),
            ("min(110, vcpus * 10)", 20),
            ("instance_type.startsWith('m5.') ? 58 : 29", 58),
            ("instance_type == 'm5.large' && vcpus > 1 ? memory_mib : 0", 8192),
            ("vcpus in [2, 4] ? 1 : 0", 1),
            ("[1, 2, 3].map(vcpus, vcpus * 2)[1] + vcpus", 6),
        ] {
            assert_eq!(number(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused_before_or_while_it_is_evaluated() {
        for (text, expected) in [
            ("vcpus *", "1:8: syntax error"),
            ("cpus", "1:1: undeclared reference to 'cpus'"),
            ("device.driver", "1:1: undeclared reference to 'device'"),
            ("instance_type", "must evaluate to an integer or a double, not string"),
            ("vcpus > 2", "must evaluate to an integer or a double, not bool"),
            ("dyn(vcpus)", "must evaluate to an integer or a double, not dyn"),
            ("vcpus * 1.5", "found no matching overload for '_*_' applied to '(int, double)'"),
            ("max(1, 2, 3)", "found no matching overload for 'max'"),
            ("max(vcpus, 'a')", "found no matching overload for 'max'"),
            ("vcpus.cores", "type 'int' does not support field selection"),
            ("instance_type.split('.').size()", "undeclared reference to 'split'"),
            ("quantity('1').asInteger()", "undeclared reference to 'quantity'"),
            ("vcpus > 4 ? 1 : 'a'", "found no matching overload for '_?_:_'"),
            ("memory_mib / (vcpus - 2)", "division by zero"),
            ("9223372036854775807 + vcpus", "integer overflow"),
            ("1.0 / 0.0", "inf is no number that can be used"),
            ("0.0 / 0.0", "NaN is no number that can be used"),
            ("1e19", "10000000000000000000 is no number that can be used"),
        ] {
            let error = number(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_variable_without_a_value_fails_only_where_it_is_looked_at() {
        let known = [("vcpus", VariableValue::Int(2))];
        let evaluate = |text: &str| NumberExpression::compile(text, VARIABLES).unwrap().evaluate(&known);
        assert_eq!(evaluate("vcpus > 1 ? 1 : memory_mib"), Ok(1));
        assert_eq!(evaluate("memory_mib"), Err(EvalError::NoSuchKey("memory_mib".into())));
    }

    #[test]
    fn length_and_cost_are_limited() {
        let long = format!("1{}", " + 1".repeat(3000));
        assert!(number(&long).unwrap_err().contains("expression has 12001 bytes"));
        let list = format!("[{}]", "1, ".repeat(200));
        let nested = format!("{list}.map(a, {list}.map(b, {list}.map(c, {list}.size()))).size()");
        assert!(number(&nested).unwrap_err().contains("cost limit"), "{:?}", number(&nested));
    }
}
