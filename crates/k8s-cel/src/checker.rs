//! Types of all nodes, overloads of all calls: what cel-go's checker accepts is accepted, all else is refused with its
//! place.
//!
//! Names are resolved on the way: a dotted name that is a function's becomes that function.

mod literals;

use std::sync::Arc;

use super::ast::{Comprehension, Expr, ExprKind, Literal, NodeId, op, qualified_name};
use super::environment::{Environment, Purpose};
use super::error::{CompileErrorKind, ErrorAt};
use super::functions::conversions::named_type;
use super::library::{Libraries, Library, Overload};
use super::parser::Parsed;
use super::types::{Type, Unifier, most_general};

/// A tree whose types are known.
pub(crate) struct Checked {
    pub(crate) expr: Expr,
    pub(crate) types: Vec<Type>,
    /// The overloads that a call may turn out to be.
    pub(crate) overloads: Vec<Vec<&'static Overload>>,
    pub(crate) parsed_offsets: Vec<u32>,
    pub(crate) environment: Environment,
}

impl Checked {
    pub(crate) fn type_of(&self, node: &Expr) -> &Type {
        self.types.get(node.id as usize).unwrap_or(&Type::Error)
    }

    pub(crate) fn overloads_of(&self, node: &Expr) -> &[&'static Overload] {
        self.overloads.get(node.id as usize).map_or(&[], Vec::as_slice)
    }
}

struct Checker {
    environment: Environment,
    functions: &'static Library,
    unifier: Unifier,
    types: Vec<Type>,
    overloads: Vec<Vec<&'static Overload>>,
    offsets: Vec<u32>,
    scopes: Vec<(Arc<str>, Type)>,
}

type Check<T> = Result<T, ErrorAt>;

/// Checks a tree.
pub(crate) fn check(parsed: Parsed, environment: Environment) -> Check<Checked> {
    let Parsed { mut expr, offsets } = parsed;
    let mut checker = Checker {
        environment,
        functions: environment.functions(),
        unifier: Unifier::default(),
        types: vec![Type::Error; offsets.len()],
        overloads: vec![Vec::new(); offsets.len()],
        offsets,
        scopes: Vec::new(),
    };
    let result = checker.check(&mut expr)?;
    let result = checker.unifier.resolve(&result, true);
    // Literals are looked at first.
    let wrong_result = (!environment.allows_result(&result)).then(|| {
        let found = result.to_string();
        let kind = match environment.purpose {
            Purpose::Verdict => CompileErrorKind::ResultType(found),
            Purpose::Attribute => CompileErrorKind::DerivedType(found),
            Purpose::Number(_) => CompileErrorKind::NumberType(found),
        };
        checker.error(&expr, kind)
    });
    let types = checker.types.iter().map(|of| checker.unifier.resolve(of, true)).collect();
    let checked = Checked { expr, types, overloads: checker.overloads, parsed_offsets: checker.offsets, environment };
    literals::literals_fit(&checked, &checked.expr, false)?;
    wrong_result.map_or(Ok(checked), Err)
}

impl Checker {
    fn error(&self, node: &Expr, kind: CompileErrorKind) -> ErrorAt {
        self.error_at(node.id, kind)
    }

    fn error_at(&self, id: NodeId, kind: CompileErrorKind) -> ErrorAt {
        ErrorAt::new(self.offsets.get(id as usize).copied().unwrap_or_default() as usize, kind)
    }

    fn mismatch(&self, node: &Expr, expected: &Type, found: &Type) -> ErrorAt {
        let (expected, found) = (self.unifier.resolve(expected, true), self.unifier.resolve(found, true));
        self.error(node, CompileErrorKind::Type(format!("expected type '{expected}' but found '{found}'")))
    }

    fn check(&mut self, node: &mut Expr) -> Check<Type> {
        super::with_stack(|| self.check_within(node))
    }

    fn check_within(&mut self, node: &mut Expr) -> Check<Type> {
        let of = match &mut node.kind {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => {
                let found = self.local(name);
                if let (Some((name_of_local, _)), ExprKind::Ident(name)) = (&found, &mut node.kind) {
                    *name = name_of_local.clone();
                }
                match found {
                    Some((_, of)) => of,
                    None => self.global(node)?,
                }
            }
            ExprKind::Select { .. } => self.select(node)?,
            ExprKind::Call { .. } => self.call(node)?,
            ExprKind::List(_) => self.list(node)?,
            ExprKind::Map(_) => self.map(node)?,
            // Differs: `cel-types`. Messages of protobuf's well-known types, which upstream can build, are not.
            ExprKind::Struct(name) => {
                let name = name.to_string();
                return Err(self.error(node, CompileErrorKind::Undeclared(name)));
            }
            ExprKind::Comprehension(_) => self.comprehension(node)?,
        };
        if let Some(slot) = self.types.get_mut(node.id as usize) {
            *slot = of.clone();
        }
        Ok(of)
    }

    /// The variable of a macro that a name refers to. `.name` does so up to 1.36; as a variable of its own it declares
    /// nothing that can be referred to.
    fn local(&self, name: &str) -> Option<(Arc<str>, Type)> {
        let bare = match name.strip_prefix('.') {
            Some(_) if self.environment.libraries == Libraries::Since1_37 => return None,
            Some(bare) => bare,
            None => name,
        };
        self.scopes.iter().rev().find(|(found, _)| **found == *bare).cloned()
    }

    /// Whether a dotted name is a way into a variable of a macro; up to 1.36 names of types come first.
    fn starts_with_a_variable(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or_default();
        self.environment.libraries == Libraries::Since1_37 && self.scopes.iter().any(|(found, _)| **found == *first)
    }

    /// The type of `device` or of another variable, or the name of a type.
    fn global(&self, node: &Expr) -> Check<Type> {
        let ExprKind::Ident(name) = &node.kind else { return Ok(Type::Error) };
        if let Some(of) = self.environment.variable_type(without_dot(name)) {
            return Ok(of);
        }
        match named_type(without_dot(name)) {
            Some(of) => Ok(Type::Type(Some(Arc::new(of)))),
            None => Err(self.error(node, CompileErrorKind::Undeclared(name.to_string()))),
        }
    }

    fn select(&mut self, node: &mut Expr) -> Check<Type> {
        // A dotted name may be a type's.
        if let Some(name) = qualified_name(node).filter(|name| name.contains('.'))
            && let Some(of) = named_type(without_dot(&name))
            && !self.starts_with_a_variable(&name)
        {
            node.kind = ExprKind::Ident(name.into());
            return Ok(Type::Type(Some(Arc::new(of))));
        }
        let ExprKind::Select { operand, field, test } = &mut node.kind else { return Ok(Type::Error) };
        let (field, test) = (field.clone(), *test);
        let operand_type = self.check(operand)?;
        let of = self.field(node.id, &operand_type, &field, false)?;
        Ok(if test { Type::Bool } else { self.unifier.resolve(&of, false) })
    }

    /// The type of a field of a value of some type.
    fn field(&mut self, id: NodeId, operand: &Type, field: &str, optional: bool) -> Check<Type> {
        let operand = self.unifier.resolve(operand, false);
        let (target, is_optional) = match operand {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let of = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Device => match self.environment.field_type(field) {
                Some(of) => of,
                None => return Err(self.error_at(id, CompileErrorKind::UndefinedField(field.to_owned()))),
            },
            Type::Param(_) => {
                self.unifier.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                let reason = format!("type '{other}' does not support field selection");
                return Err(self.error_at(id, CompileErrorKind::Type(reason)));
            }
        };
        Ok(if is_optional || optional { Type::optional(of) } else { of })
    }

    fn call(&mut self, node: &mut Expr) -> Check<Type> {
        let id = node.id;
        let ExprKind::Call { function, target, args } = &mut node.kind else { return Ok(Type::Error) };
        if &**function == op::OPTIONAL_SELECT {
            let [operand, field] = args.as_mut_slice() else { return Ok(Type::Error) };
            let operand_type = self.check(operand)?;
            self.check(field)?;
            let ExprKind::Literal(Literal::String(name)) = &field.kind else { return Ok(Type::Error) };
            let of = self.field(id, &operand_type, &name.clone(), true)?;
            return Ok(self.unifier.resolve(&of, false));
        }
        let mut types = Vec::with_capacity(args.len() + 1);
        for arg in args.iter_mut() {
            types.push(self.check(arg)?);
        }
        let global_name = match target {
            None => Some(without_dot(function).to_owned()),
            Some(target) => qualified_name(target)
                .map(|prefix| format!("{}.{function}", without_dot(&prefix)))
                .filter(|name| self.functions.contains_key(name.as_str())),
        };
        if let op::AND | op::OR = &**function {
            for (arg, of) in args.iter().zip(&types) {
                if !self.unifier.assignable(of, &Type::Bool) {
                    return Err(self.mismatch(arg, &Type::Bool, of));
                }
            }
        }
        let Some(name) = global_name else {
            if let Some(target) = target {
                types.insert(0, self.check(target)?);
            }
            let name = function.clone();
            return self.resolve(id, &name, true, &types);
        };
        if target.take().is_some() || function.starts_with('.') {
            *function = name.as_str().into();
        }
        self.resolve(id, &name, false, &types)
    }

    /// Finds the overloads of a call, and its type.
    fn resolve(&mut self, id: NodeId, name: &str, member: bool, args: &[Type]) -> Check<Type> {
        let Some(overloads) = self.functions.get(name) else {
            return Err(self.error_at(id, CompileErrorKind::Undeclared(name.to_owned())));
        };
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.member == member) {
            if overload.params.len() != args.len() {
                continue;
            }
            let base: Vec<u32> = (0..overload.variables).map(|_| self.unifier.fresh()).collect();
            let params: Vec<Type> = overload.params.iter().map(|param| instantiate(param, &base)).collect();
            let pairs: Vec<(&Type, &Type)> = args.iter().zip(&params).collect();
            if !self.unifier.assignable_all(&pairs) {
                continue;
            }
            matching.push(overload);
            let of = self.unifier.resolve(&instantiate(&overload.result, &base), false);
            result = Some(match result {
                None => of,
                Some(before) if before.is_dyn() || before == of => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<_> = args.iter().map(|of| self.unifier.resolve(of, true).to_string()).collect();
            let call = match types.split_first() {
                Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            let reason = format!("found no matching overload for '{name}' applied to '{call}'");
            return Err(self.error_at(id, CompileErrorKind::Type(reason)));
        };
        if let Some(slot) = self.overloads.get_mut(id as usize) {
            *slot = matching;
        }
        Ok(result)
    }

    /// The type of what stands at an optional place.
    fn unwrapped(&self, node: &Expr, of: Type) -> Check<Type> {
        match of {
            Type::Optional(inner) => Ok((*inner).clone()),
            Type::Dyn | Type::Any => Ok(of),
            other => Err(self.mismatch(node, &Type::optional(other.clone()), &other)),
        }
    }

    /// The type of the elements of a literal; whether they may differ is decided later.
    fn join(&mut self, before: Option<Type>, of: Type) -> Type {
        match before {
            None => of,
            Some(before) if self.unifier.assignable(&before, &of) => most_general(&before, &of).clone(),
            Some(_) => Type::Dyn,
        }
    }

    fn list(&mut self, node: &mut Expr) -> Check<Type> {
        let ExprKind::List(elements) = &mut node.kind else { return Ok(Type::Error) };
        let mut joined = None;
        for (element, optional) in elements {
            let mut of = self.check(element)?;
            if *optional {
                of = self.unwrapped(element, of)?;
            }
            joined = Some(self.join(joined, of));
        }
        let element = joined.unwrap_or_else(|| Type::Param(self.unifier.fresh()));
        Ok(Type::list(element))
    }

    fn map(&mut self, node: &mut Expr) -> Check<Type> {
        let ExprKind::Map(entries) = &mut node.kind else { return Ok(Type::Error) };
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            let of = self.check(key)?;
            keys = Some(self.join(keys, of));
            let mut of = self.check(value)?;
            if *optional {
                of = self.unwrapped(value, of)?;
            }
            values = Some(self.join(values, of));
        }
        let key = keys.unwrap_or_else(|| Type::Param(self.unifier.fresh()));
        let value = values.unwrap_or_else(|| Type::Param(self.unifier.fresh()));
        Ok(Type::map(key, value))
    }

    fn comprehension(&mut self, node: &mut Expr) -> Check<Type> {
        let ExprKind::Comprehension(fold) = &mut node.kind else { return Ok(Type::Error) };
        let Comprehension { range, var, var2, accumulator, init, condition, step, result } = &mut **fold;
        let range_type = self.check(range)?;
        let range_type = self.unifier.resolve(&range_type, false);
        let accumulator_type = self.check(init)?;
        let (first, second) = match &range_type {
            Type::List(element) if var2.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.unifier.assignable(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let reason = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(self.error(range, CompileErrorKind::Type(reason)));
            }
        };
        let outer = self.scopes.len();
        self.scopes.push((accumulator.clone(), accumulator_type.clone()));
        self.scopes.push((var.clone(), first));
        if let Some(var2) = var2 {
            self.scopes.push((var2.clone(), second));
        }
        let of = self.check(condition)?;
        if !self.unifier.assignable(&Type::Bool, &of) {
            return Err(self.mismatch(condition, &Type::Bool, &of));
        }
        let of = self.check(step)?;
        if !self.unifier.assignable(&accumulator_type, &of) {
            return Err(self.mismatch(step, &accumulator_type, &of));
        }
        self.scopes.truncate(outer + 1);
        let of = self.check(result)?;
        self.scopes.truncate(outer);
        Ok(self.unifier.resolve(&of, false))
    }
}

/// A name that may begin with a dot, as it is declared.
fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// A declared type with fresh variables.
fn instantiate(of: &Type, variables: &[u32]) -> Type {
    match of {
        Type::Param(number) => Type::Param(variables.get(*number as usize).copied().unwrap_or(*number)),
        Type::List(element) => Type::list(instantiate(element, variables)),
        Type::Map(key, value) => Type::map(instantiate(key, variables), instantiate(value, variables)),
        Type::Optional(value) => Type::optional(instantiate(value, variables)),
        Type::Type(Some(inner)) => Type::Type(Some(Arc::new(instantiate(inner, variables)))),
        other => other.clone(),
    }
}
