//! What an expression can refer to and may give: the fields of `device` or variables, the functions, the types of a
//! result.

use super::library::{Libraries, Library, library, numbers};
use super::types::Type;
use dra_types::{Compat, Gate, KubernetesMinor};

/// What expressions can refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `device.allowMultipleAllocations`
    pub(crate) allow_multiple_allocations: bool,
    pub(crate) includes: bool,
    /// The release of cel-go and Kubernetes' libraries.
    pub(crate) libraries: Libraries,
    /// Attributes that may be lists.
    pub(crate) list_attributes: bool,
    /// What it gives.
    pub(crate) gives: Gives,
    /// What there is in place of `device`.
    pub(crate) variables: Option<Variables>,
}

/// What an expression gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    /// A selector's verdict.
    Verdict,
    /// What an attribute can hold (KEP-6080).
    Attribute,
    /// An integer or a double.
    Number,
}

/// Names with their types.
pub type Variables = &'static [(&'static str, VariableType)];

/// The type of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableType {
    /// A whole number.
    Int,
    /// A text.
    String,
}

impl Environment {
    /// What a stored expression can refer to: all that the release knows, whatever its gates; only the type of
    /// attributes depends on one.
    pub(crate) fn stored(compat: &Compat) -> Self {
        let libraries = Libraries::of(compat);
        Self {
            allow_multiple_allocations: true,
            includes: compat.kubernetes >= KubernetesMinor::V1_36,
            libraries,
            // From 1.37 on the newest type of `device` is that of every stored expression.
            list_attributes: compat.is_on(Gate::ListTypeAttributes) || libraries == Libraries::Since1_37,
            gives: Gives::Verdict,
            variables: None,
        }
    }

    /// What a new expression can refer to at admission: features whose gate is on.
    pub(crate) fn new(compat: &Compat) -> Self {
        let consumable_capacity = compat.is_on(Gate::ConsumableCapacity);
        let list_attributes = compat.is_on(Gate::ListTypeAttributes);
        Self {
            allow_multiple_allocations: consumable_capacity && compat.kubernetes >= KubernetesMinor::V1_35,
            includes: list_attributes,
            libraries: Libraries::of(compat),
            list_attributes,
            gives: Gives::Verdict,
            variables: None,
        }
    }

    /// What an expression for a number can refer to.
    pub(crate) fn number(variables: Variables) -> Self {
        Self {
            allow_multiple_allocations: false,
            includes: false,
            libraries: Libraries::Since1_37,
            list_attributes: false,
            gives: Gives::Number,
            variables: Some(variables),
        }
    }

    /// The type of a name at the top.
    pub(crate) fn variable_type(self, name: &str) -> Option<Type> {
        let Some(variables) = self.variables else { return (name == "device").then_some(Type::Device) };
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, of)| match of {
            VariableType::Int => Type::Int,
            VariableType::String => Type::String,
        })
    }

    /// Whether an expression may give a value of this type.
    pub(crate) fn allows_result(self, result: &Type) -> bool {
        match (self.gives, result) {
            // A stored expression may give lists whether the gate for them is on or not.
            (Gives::Attribute, Type::List(element)) => element.is_attribute(),
            (Gives::Attribute, result) => result.is_attribute(),
            (Gives::Number, result) => matches!(result, Type::Int | Type::Double),
            (Gives::Verdict, Type::Bool | Type::Any) => true,
            (Gives::Verdict, Type::Dyn) => self.list_attributes,
            (Gives::Verdict, _) => false,
        }
    }

    pub(crate) fn attribute_type(self) -> Type {
        if self.list_attributes { Type::Dyn } else { Type::Any }
    }

    /// The type of a field of `device`.
    pub(crate) fn field_type(self, field: &str) -> Option<Type> {
        let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
        match field {
            "driver" => Some(Type::String),
            "attributes" => Some(by_domain(self.attribute_type())),
            "capacity" => Some(by_domain(Type::Quantity)),
            "allowMultipleAllocations" if self.allow_multiple_allocations => Some(Type::Bool),
            _ => None,
        }
    }

    pub(crate) fn functions(self) -> &'static Library {
        match self.gives {
            Gives::Number => numbers(),
            Gives::Verdict | Gives::Attribute => library(self.includes, self.libraries),
        }
    }
}
