//! Macros: calls that stand for another tree, expanded while parsing.
//!
//! The expansions are cel-go's, node for node, because cost is counted over them.

use std::sync::Arc;

use super::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal, op};
use super::error::ErrorAt;
use super::parser::Parser;

type Expanded = Result<Expr, ErrorAt>;

/// `name(args)`
pub(crate) fn global_call(parser: &mut Parser, offset: u32, name: Arc<str>, args: Vec<Expr>) -> Expanded {
    if &*name == "has" && args.len() == 1 {
        let invalid = |parser: &Parser, node: &Expr| Err(parser.error_at(node, "invalid argument to has() macro"));
        return match args.into_iter().next() {
            Some(Expr { kind: ExprKind::Select { operand, field, test: false }, .. }) => {
                Ok(parser.node(offset, ExprKind::Select { operand, field, test: true }))
            }
            Some(other) => invalid(parser, &other),
            None => Ok(parser.node(offset, ExprKind::Ident(name))),
        };
    }
    Ok(parser.node(offset, ExprKind::Call { function: name, target: None, args }))
}

/// `target.name(args)`
pub(crate) fn receiver_call(
    parser: &mut Parser,
    offset: u32,
    target: Expr,
    name: Arc<str>,
    args: Vec<Expr>,
) -> Expanded {
    let mut build = Builder { parser, offset };
    match (&*name, args.len()) {
        ("all" | "exists" | "exists_one", 2 | 3) | ("existsOne", 3) => build.quantifier(&name, target, args),
        ("map", 2 | 3) => build.map(target, args),
        ("filter", 2) => build.filter(target, args),
        ("transformList", 3 | 4) => build.transform_list(target, args),
        ("transformMap" | "transformMapEntry", 3 | 4) => build.transform_map(&name, target, args),
        ("optMap" | "optFlatMap", 2) => build.optional_map(&name, target, args),
        ("sortBy", 2) => build.sort_by(target, args),
        ("bind", 3) if target.kind == ExprKind::Ident("cel".into()) => build.bind(args),
        _ => Ok(parser.node(offset, ExprKind::Call { function: name, target: Some(Box::new(target)), args })),
    }
}

struct Builder<'a> {
    parser: &'a mut Parser,
    offset: u32,
}

/// The last of some arguments whose number was checked.
fn last(args: &mut Vec<Expr>) -> Expr {
    args.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Literal(Literal::Null) })
}

impl Builder<'_> {
    fn literal(&mut self, literal: Literal) -> Expr {
        self.parser.node(self.offset, ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.parser.node(self.offset, ExprKind::Ident(name.into()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let elements = elements.into_iter().map(|element| (element, false)).collect();
        self.parser.node(self.offset, ExprKind::List(elements))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.parser.call(self.offset, function, args)
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        let kind = ExprKind::Call { function: function.into(), target: Some(Box::new(target)), args };
        self.parser.node(self.offset, kind)
    }

    fn fold(&mut self, comprehension: Comprehension) -> Expr {
        self.parser.node(self.offset, ExprKind::Comprehension(Box::new(comprehension)))
    }

    /// The name that an argument is.
    fn variable(&self, node: &Expr) -> Result<Arc<str>, ErrorAt> {
        match &node.kind {
            ExprKind::Ident(name) => Ok(name.clone()),
            _ => Err(self.parser.error_at(node, "argument must be a simple name")),
        }
    }

    /// The one or two iteration variables that come first.
    fn variables(&self, args: &[Expr], two: bool) -> Result<(Arc<str>, Option<Arc<str>>), ErrorAt> {
        let mut names = args.iter().map(|node| self.variable(node).map(|name| (name, node)));
        let (first, _) = names.next().transpose()?.unwrap_or_else(|| (Arc::from(""), &DUMMY));
        if !two {
            return Ok((first, None));
        }
        match names.next().transpose()? {
            Some((second, node)) if second == first => {
                Err(self.parser.error_at(node, "duplicate iteration variable name"))
            }
            other => Ok((first, other.map(|(name, _)| name))),
        }
    }

    fn quantifier(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let (var, var2) = self.variables(&args, args.len() == 3)?;
        let predicate = last(&mut args);
        let (init, condition, step, result) = match name {
            "all" => {
                let accumulator = self.accumulator();
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![accumulator]);
                let accumulator = self.accumulator();
                let step = self.call(op::AND, vec![accumulator, predicate]);
                (self.literal(Literal::Bool(true)), condition, step, self.accumulator())
            }
            "exists" => {
                let accumulator = self.accumulator();
                let negated = self.call(op::NOT, vec![accumulator]);
                let condition = self.call(op::NOT_STRICTLY_FALSE, vec![negated]);
                let accumulator = self.accumulator();
                let step = self.call(op::OR, vec![accumulator, predicate]);
                (self.literal(Literal::Bool(false)), condition, step, self.accumulator())
            }
            _ => {
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let sum = self.call(op::ADD, vec![accumulator, one]);
                let accumulator = self.accumulator();
                let step = self.call(op::CONDITIONAL, vec![predicate, sum, accumulator]);
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let result = self.call(op::EQUALS, vec![accumulator, one]);
                (self.literal(Literal::Int(0)), self.literal(Literal::Bool(true)), step, result)
            }
        };
        Ok(self.fold(Comprehension {
            range: target,
            var,
            var2,
            accumulator: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        }))
    }

    /// A fold that appends to a list, where `keep` holds if it is given.
    fn collect(
        &mut self,
        range: Expr,
        (var, var2): (Arc<str>, Option<Arc<str>>),
        keep: Option<Expr>,
        element: Expr,
    ) -> Expr {
        let accumulator = self.accumulator();
        let element = self.list(vec![element]);
        let appended = self.call(op::ADD, vec![accumulator, element]);
        let init = self.list(Vec::new());
        self.fold_container(range, (var, var2), init, keep, appended)
    }

    fn fold_container(
        &mut self,
        range: Expr,
        (var, var2): (Arc<str>, Option<Arc<str>>),
        init: Expr,
        keep: Option<Expr>,
        step: Expr,
    ) -> Expr {
        let condition = self.literal(Literal::Bool(true));
        let step = match keep {
            Some(keep) => {
                let accumulator = self.accumulator();
                self.call(op::CONDITIONAL, vec![keep, step, accumulator])
            }
            None => step,
        };
        let result = self.accumulator();
        let accumulator = ACCUMULATOR.into();
        self.fold(Comprehension { range, var, var2, accumulator, init, condition, step, result })
    }

    fn map(&mut self, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&args, false)?;
        let element = last(&mut args);
        let keep = if args.len() == 2 { args.pop() } else { None };
        Ok(self.collect(target, variables, keep, element))
    }

    fn filter(&mut self, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&args, false)?;
        let keep = last(&mut args);
        let element = last(&mut args);
        Ok(self.collect(target, variables, Some(keep), element))
    }

    fn transform_list(&mut self, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&args, true)?;
        let element = last(&mut args);
        let keep = if args.len() == 3 { args.pop() } else { None };
        Ok(self.collect(target, variables, keep, element))
    }

    fn transform_map(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&args, true)?;
        let value = last(&mut args);
        let keep = if args.len() == 3 { args.pop() } else { None };
        let accumulator = self.accumulator();
        let step = if name == "transformMap" {
            let key = self.ident(&variables.0);
            self.call("cel.@mapInsert", vec![accumulator, key, value])
        } else {
            self.call("cel.@mapInsert", vec![accumulator, value])
        };
        let init = self.parser.node(self.offset, ExprKind::Map(Vec::new()));
        Ok(self.fold_container(target, variables, init, keep, step))
    }

    fn bind_to(&mut self, accumulator: Arc<str>, init: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&accumulator);
        self.fold(Comprehension {
            range,
            var: "#unused".into(),
            var2: None,
            accumulator,
            init,
            condition,
            step,
            result,
        })
    }

    fn bind(&mut self, mut args: Vec<Expr>) -> Expanded {
        let (name, _) = self.variables(&args, false)?;
        let result = last(&mut args);
        let init = last(&mut args);
        Ok(self.bind_to(name, init, result))
    }

    fn optional_map(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let (variable, _) = self.variables(&args, false)?;
        let transformed = last(&mut args);
        let copy = self.copy(&target);
        let present = self.member("hasValue", target, Vec::new());
        let value = self.member("value", copy, Vec::new());
        let bound = self.bind_to(variable, value, transformed);
        let then = if name == "optMap" { self.optional("of", vec![bound]) } else { bound };
        let otherwise = self.optional("none", Vec::new());
        Ok(self.call(op::CONDITIONAL, vec![present, then, otherwise]))
    }

    fn optional(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.call(&format!("optional.{function}"), args)
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Expanded {
        const INPUT: &str = "@__sortBy_input__";
        let input = self.ident(INPUT);
        let keys = self.map(input, args)?;
        let input = self.ident(INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind_to(INPUT.into(), target, sorted))
    }

    /// A copy with nodes of its own.
    ///
    /// Copies of copies double with each macro of a chain; the parser refuses what grows beyond its limit, and nothing
    /// more is copied from then on.
    fn copy(&mut self, expr: &Expr) -> Expr {
        if self.parser.is_too_large() {
            return Expr { id: 0, kind: ExprKind::Literal(Literal::Null) };
        }
        let kind = match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Struct(_) => expr.kind.clone(),
            ExprKind::Select { operand, field, test } => {
                ExprKind::Select { operand: Box::new(self.copy(operand)), field: field.clone(), test: *test }
            }
            ExprKind::Call { function, target, args } => ExprKind::Call {
                function: function.clone(),
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                args: args.iter().map(|arg| self.copy(arg)).collect(),
            },
            ExprKind::List(elements) => {
                ExprKind::List(elements.iter().map(|(element, optional)| (self.copy(element), *optional)).collect())
            }
            ExprKind::Map(entries) => ExprKind::Map(
                entries.iter().map(|(key, value, optional)| (self.copy(key), self.copy(value), *optional)).collect(),
            ),
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range),
                var: fold.var.clone(),
                var2: fold.var2.clone(),
                accumulator: fold.accumulator.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        let offset = self.parser.offset_of(expr);
        self.parser.node(offset, kind)
    }
}

static DUMMY: Expr = Expr { id: 0, kind: ExprKind::Literal(Literal::Null) };
