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
    pub(crate) purpose: Purpose,
}

/// What an expression is for, which decides what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A selector's verdict.
    Verdict,
    /// What an attribute can hold (KEP-6080).
    Attribute,
    /// An integer or a double, from variables in place of `device`.
    Number(Variables),
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
            purpose: Purpose::Verdict,
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
            purpose: Purpose::Verdict,
        }
    }

    /// What an expression for a number can refer to.
    pub(crate) fn number(variables: Variables) -> Self {
        Self {
            allow_multiple_allocations: false,
            includes: false,
            libraries: Libraries::Since1_37,
            list_attributes: false,
            purpose: Purpose::Number(variables),
        }
    }

    /// The type of a name at the top.
    pub(crate) fn variable_type(self, name: &str) -> Option<Type> {
        let Purpose::Number(variables) = self.purpose else { return (name == "device").then_some(Type::Device) };
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, of)| match of {
            VariableType::Int => Type::Int,
            VariableType::String => Type::String,
        })
    }

    /// Whether an expression may give a value of this type.
    pub(crate) fn allows_result(self, result: &Type) -> bool {
        match (self.purpose, result) {
            // A stored expression may give lists whether the gate for them is on or not.
            (Purpose::Attribute, Type::List(element)) => element.is_attribute(),
            (Purpose::Attribute, result) => result.is_attribute(),
            (Purpose::Number(_), result) => matches!(result, Type::Int | Type::Double),
            (Purpose::Verdict, Type::Bool | Type::Any) => true,
            (Purpose::Verdict, Type::Dyn) => self.list_attributes,
            (Purpose::Verdict, _) => false,
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
        match self.purpose {
            Purpose::Number(_) => numbers(),
            Purpose::Verdict | Purpose::Attribute => library(self.includes, self.libraries),
        }
    }
}
