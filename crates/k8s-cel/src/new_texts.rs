//! What the API server compiles of an object when it is created.

use dra_types::validate::Compiler;
use dra_types::{Compat, Gate, KubernetesMinor};

use super::derived::DerivedExpression;
use super::selector::Selector;

/// Whether the texts of new objects compile, for [`dra_types::validate`].
pub fn compiles(compat: &Compat) -> impl Compiler {
    NewTexts(compat)
}

struct NewTexts<'a>(&'a Compat);

impl Compiler for NewTexts<'_> {
    fn selector(&self, text: &str) -> Result<(), String> {
        Selector::compile_new(text, self.0).map(drop).map_err(|error| error.to_string())
    }

    fn derives_attributes(&self) -> bool {
        self.0.kubernetes >= KubernetesMinor::V1_37 && self.0.is_on(Gate::DerivedAttributes)
    }

    fn derived_attribute(&self, text: &str) -> Result<u64, String> {
        DerivedExpression::cost_of_new(text, self.0).map_err(|error| error.to_string())
    }
}
