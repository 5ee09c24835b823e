//! Which functions exist: the standard library, cel-go's extensions and Kubernetes' own, each overload with its types
//! and its implementation.
//!
//! Order matters where a type is still open: the first overload that fits decides it. Names and types are upstream's;
//! the authorization library is declared, because its names are known to the checker, but no value of its types can be
//! had.

mod extensions;
mod kubernetes;
mod standard;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::functions::{Function, collections};
use super::types::Type;
use dra_types::{Compat, Edition, KubernetesMinor};

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether it is called on a target, which is then the first parameter.
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// How many type variables the signature has.
    pub(crate) variables: u32,
    /// None for operators that the evaluator handles itself, and for what can never be called.
    pub(crate) run: Option<Function>,
}

impl Overload {
    fn new((id, member): (&'static str, bool), params: Vec<Type>, result: Type, run: Option<Function>) -> Self {
        let variables = params.iter().chain([&result]).map(highest_variable).max().unwrap_or(0);
        Self { id, member, params, result, variables, run }
    }
}

/// The functions of an environment, by name.
pub(crate) type Library = BTreeMap<&'static str, Vec<Overload>>;

/// The releases of cel-go and of Kubernetes' libraries, as far as they differ here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libraries {
    /// cel-go 0.26, Kubernetes up to 1.36. `includes` is DRA's own: it costs one unit and fails on long lists.
    UpTo1_36,
    /// cel-go 0.29. `includes` is one of the functions on lists and costs a walk; a global `matches` costs what the
    /// member does; prefixes and suffixes cost their own length; `lists.range` refuses negative and huge sizes; there
    /// is no `duration` of an int; `.name` passes by the variables of macros, and these hide names of types.
    Since1_37,
}

impl Libraries {
    pub(crate) fn of(compat: &Compat) -> Self {
        let released = compat.edition() != Edition::Alpha;
        if released && compat.kubernetes >= KubernetesMinor::V1_37 { Self::Since1_37 } else { Self::UpTo1_36 }
    }
}

/// All functions, with `includes` or without.
pub(crate) fn library(includes: bool, libraries: Libraries) -> &'static Library {
    static OLD: LazyLock<Library> = LazyLock::new(|| build(false, Libraries::UpTo1_36));
    static OLD_WITH_INCLUDES: LazyLock<Library> = LazyLock::new(|| build(true, Libraries::UpTo1_36));
    static NEW: LazyLock<Library> = LazyLock::new(|| build(false, Libraries::Since1_37));
    static NEW_WITH_INCLUDES: LazyLock<Library> = LazyLock::new(|| build(true, Libraries::Since1_37));
    match (libraries, includes) {
        (Libraries::UpTo1_36, false) => &OLD,
        (Libraries::UpTo1_36, true) => &OLD_WITH_INCLUDES,
        (Libraries::Since1_37, false) => &NEW,
        (Libraries::Since1_37, true) => &NEW_WITH_INCLUDES,
    }
}

/// The functions of an expression for a number: the standard library, and `min` and `max` of two numbers, as
/// `pkg/cel/environment.go` of karpenter-provider-aws 1.15 has them.
pub(crate) fn numbers() -> &'static Library {
    static NUMBERS: LazyLock<Library> = LazyLock::new(|| {
        let mut builder = Builder(BTreeMap::new());
        standard::logic(&mut builder);
        standard::arithmetic(&mut builder);
        standard::comparisons(&mut builder);
        standard::containers(&mut builder);
        standard::type_conversions(&mut builder, Libraries::Since1_37);
        standard::string_functions(&mut builder);
        standard::time_functions(&mut builder);
        standard::least_and_greatest(&mut builder);
        builder.0
    });
    &NUMBERS
}

const A: Type = Type::Param(0);
const B: Type = Type::Param(1);

struct Builder(Library);

impl Builder {
    fn add(&mut self, name: &'static str, overload: Overload) {
        self.0.entry(name).or_default().push(overload);
    }

    fn global(&mut self, name: &'static str, id: &'static str, params: Vec<Type>, result: Type, run: Function) {
        self.add(name, Overload::new((id, false), params, result, Some(run)));
    }

    fn member(&mut self, name: &'static str, id: &'static str, params: Vec<Type>, result: Type, run: Function) {
        self.add(name, Overload::new((id, true), params, result, Some(run)));
    }

    /// Handled by the evaluator.
    fn special(&mut self, name: &'static str, id: &'static str, member: bool, params: Vec<Type>, result: Type) {
        self.add(name, Overload::new((id, member), params, result, None));
    }
}

fn highest_variable(of: &Type) -> u32 {
    match of {
        Type::Param(variable) => variable + 1,
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => highest_variable(inner),
        Type::Map(key, value) => highest_variable(key).max(highest_variable(value)),
        _ => 0,
    }
}

fn build(includes: bool, libraries: Libraries) -> Library {
    let mut builder = Builder(BTreeMap::new());
    standard::logic(&mut builder);
    standard::arithmetic(&mut builder);
    standard::comparisons(&mut builder);
    standard::containers(&mut builder);
    standard::type_conversions(&mut builder, libraries);
    // Which `indexOf` comes first decides what an element of unknown type is taken for.
    if libraries == Libraries::UpTo1_36 {
        kubernetes::kubernetes_lists(&mut builder);
    }
    standard::string_functions(&mut builder);
    extensions::string_functions(&mut builder);
    standard::time_functions(&mut builder);
    extensions::optionals(&mut builder);
    extensions::list_extensions(&mut builder, libraries);
    if libraries == Libraries::Since1_37 {
        kubernetes::kubernetes_lists(&mut builder);
    }
    kubernetes::quantities_and_versions(&mut builder);
    kubernetes::addresses(&mut builder);
    kubernetes::urls_and_formats(&mut builder);
    kubernetes::authorization(&mut builder);
    if includes {
        let (id, run): (_, Function) = match libraries {
            Libraries::UpTo1_36 => ("dra_includes_dyn_dyn", collections::includes_of_few),
            Libraries::Since1_37 => ("list_includes_dyn_dyn", collections::includes),
        };
        builder.member("includes", id, vec![Type::Dyn, Type::Dyn], Type::Bool, run);
    }
    builder.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::format;

    #[test]
    fn overloads_of_a_function_have_ids_of_their_own() {
        for (name, overloads) in library(true, Libraries::Since1_37) {
            let mut ids: Vec<_> = overloads.iter().map(|overload| overload.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), overloads.len(), "{name}");
        }
    }

    #[test]
    fn includes_is_there_only_if_asked_for() {
        for libraries in [Libraries::UpTo1_36, Libraries::Since1_37] {
            assert!(library(true, libraries).contains_key("includes"));
            assert!(!library(false, libraries).contains_key("includes"));
        }
    }

    #[test]
    fn every_named_format_can_be_called() {
        for format in &format::FORMATS {
            let library = library(false, Libraries::Since1_37);
            assert!(library.contains_key(format!("format.{}", format.name).as_str()), "{}", format.name);
        }
    }
}
