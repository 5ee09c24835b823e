//! A device selector, compiled.

use std::sync::Arc;

use super::checker::{Checked, check};
use super::cost::estimate;
use super::device::DeviceView;
use super::environment::Environment;
use super::error::{CompileError, CompileErrorKind, EvalError};
use super::eval::{Outcome, evaluate};
use super::parser::parse;
use super::plan::{Plan, plan};
use super::slots::{SlotProgram, SlotTable};
use super::value::Value;
use dra_types::Compat;

/// Bytes of an expression.
pub const MAX_LENGTH: usize = 10 * 1024;

/// Units that an evaluation may cost, and its estimate at admission.
pub const MAX_COST: u64 = 1_000_000;

/// A selector that can be asked about devices. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Selector {
    text: Arc<str>,
    plan: Arc<Plan>,
    max_cost: u64,
}

/// A verdict on a device, or an error, with what it cost upstream to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the device matches.
    pub outcome: Result<bool, EvalError>,
    /// Units, as upstream counts them.
    pub cost: u64,
}

impl Selector {
    /// Compiles a text that is stored in an object, for a release and its gates, as the scheduler does.
    ///
    /// # Errors
    /// The text is refused wherever upstream refuses it, with its place and the reason. An estimate beyond
    /// [`MAX_COST`] is no error here: admission refuses it ([`Self::max_cost`]), but an object that is stored may
    /// have one.
    pub fn compile(text: &str, compat: &Compat) -> Result<Self, CompileError> {
        Self::compile_in(text, Environment::stored(compat))
    }

    /// Compiles a text as the API server does when an object with it is created: features behind gates that are off
    /// are unknown, and an estimate beyond [`MAX_COST`] is refused.
    ///
    /// # Errors
    /// As for [`Self::compile`].
    pub fn compile_new(text: &str, compat: &Compat) -> Result<Self, CompileError> {
        let selector = Self::compile_in(text, Environment::new(compat))?;
        if selector.max_cost > MAX_COST {
            return Err(CompileError { line: 1, column: 1, kind: CompileErrorKind::TooExpensive(selector.max_cost) });
        }
        Ok(selector)
    }

    fn compile_in(text: &str, environment: Environment) -> Result<Self, CompileError> {
        let (checked, plan) = compile(text, environment)?;
        Ok(Self { text: text.into(), plan, max_cost: estimate(&checked) })
    }

    /// The text it was compiled from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The greatest cost that an evaluation can have, as the API server estimates it at admission; `u64::MAX` if it
    /// has no bound.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Whether a device matches.
    ///
    /// # Errors
    /// The evaluation failed; that is not "no match", upstream ends the pod's scheduling with it.
    pub fn matches(&self, device: &DeviceView) -> Result<bool, EvalError> {
        self.evaluate(device).outcome
    }

    /// Whether a device matches, with the cost, by the general evaluator.
    pub fn evaluate(&self, device: &DeviceView) -> Evaluation {
        let value = match &device.device {
            Ok(value) => value,
            Err(error) => return Evaluation { outcome: Err(error.clone()), cost: 0 },
        };
        let (outcome, cost) = evaluate(&self.plan, value, MAX_COST);
        Evaluation { outcome: verdict(outcome), cost }
    }

    /// The selector as a program over a table's slots, if it is a simple one.
    pub fn lower(&self, table: &mut SlotTable) -> Option<SlotProgram> {
        SlotProgram::lower(&self.plan, table)
    }
}

/// Only a bool is a verdict.
pub(crate) fn verdict(outcome: Outcome) -> Result<bool, EvalError> {
    match outcome? {
        Value::Bool(matches) => Ok(matches),
        other => Err(EvalError::NotBool(other.type_name())),
    }
}

/// From a text to a plan, whatever the expression is for.
pub(crate) fn compile(text: &str, environment: Environment) -> Result<(Checked, Arc<Plan>), CompileError> {
    if text.len() > MAX_LENGTH {
        let kind = CompileErrorKind::TooLong { length: text.len(), limit: MAX_LENGTH };
        return Err(CompileError { line: 1, column: 1, kind });
    }
    let compiled = parse(text).and_then(|parsed| check(parsed, environment)).and_then(|checked| {
        let plan = plan(&checked)?;
        Ok((checked, Arc::new(plan)))
    });
    compiled.map_err(|error| error.in_text(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_types::{Device, KubernetesMinor};

    fn run(text: &str) -> Result<Result<bool, EvalError>, CompileError> {
        let compat = Compat::new(KubernetesMinor::NEWEST);
        let device = Device::from_json(&serde_json::json!({"name": "a"})).unwrap();
        let view = DeviceView::new(&"d".into(), &device, &compat);
        Selector::compile(text, &compat).map(|selector| selector.matches(&view))
    }

    #[test]
    fn new_selectors_may_say_includes_where_the_gate_for_lists_is_on() {
        let text = "device.attributes['d'].numa.includes(1)";
        for release in [KubernetesMinor::V1_36, KubernetesMinor::V1_37] {
            let all = Compat::with_gates(release, dra_types::Gates::all(release));
            assert!(Selector::compile_new(text, &all).is_ok(), "{release}");
            assert!(Selector::compile_new(text, &Compat::new(release)).is_err(), "{release}");
        }
    }

    #[test]
    fn the_deepest_texts_allowed_fit_a_small_stack_and_deeper_ones_are_refused() {
        let nested = |open: &str, count: usize, inner: &str, close: &str| {
            format!("{}{inner}{}", open.repeat(count), close.repeat(count))
        };
        let matches = |text: String| run(&text).unwrap().unwrap();
        assert!(matches(nested("(", 249, "true", ")")));
        assert!(matches(format!("{} == 1", nested("dyn(", 240, "1", ")"))));
        assert!(matches(format!("1{} == 250", " + 1".repeat(249))));
        assert!(matches(nested("[1].exists(x, ", 100, "true", ")")));
        for text in [nested("(", 5000, "1", ")"), format!("{}1", "1+".repeat(5000)), nested("[", 5000, "", "]")] {
            assert!(matches!(run(&text).unwrap_err().kind, CompileErrorKind::TooDeep(_)));
        }
        assert!(run(&"(]".repeat(5000)).is_err());
    }

    #[test]
    fn macros_that_double_are_refused_before_they_fill_memory() {
        let text = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(200));
        assert!(matches!(run(&text).unwrap_err().kind, CompileErrorKind::TooLarge(_)));
    }

    #[test]
    fn an_evaluation_ends_at_the_cost_limit_even_beside_what_decides() {
        let range = "lists.range(1000)";
        let text = format!("{range}.all(x, {range}.all(y, {range}.all(z, x + y + z >= 0))) || true");
        assert_eq!(run(&text).unwrap(), Err(EvalError::CostLimitExceeded));
    }

    #[test]
    fn a_text_beyond_the_apis_limit_is_refused_unread() {
        assert!(matches!(run(&"!".repeat(MAX_LENGTH + 1)).unwrap_err().kind, CompileErrorKind::TooLong { .. }));
    }
}
