//! What an expression can refer to and may give: the fields of `device`, the functions, the types of a result.

use super::library::{Libraries, Library, library};
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
    /// The expression computes an attribute (KEP-6080) and gives what an attribute can hold, not a verdict.
    pub(crate) derives_attribute: bool,
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
            derives_attribute: false,
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
            derives_attribute: false,
        }
    }

    /// Whether an expression may give a value of this type.
    pub(crate) fn allows_result(self, result: &Type) -> bool {
        if self.derives_attribute {
            // A stored expression may give lists whether the gate for them is on or not.
            return result.is_attribute() || matches!(result, Type::List(element) if element.is_attribute());
        }
        match result {
            Type::Bool | Type::Any => true,
            Type::Dyn => self.list_attributes,
            _ => false,
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
        library(self.includes, self.libraries)
    }
}
