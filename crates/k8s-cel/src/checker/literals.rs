//! Literals that can be judged without a device: lists and maps of one type, patterns, durations, timestamps, and the
//! arguments of `format`.

use super::{Check, Checked};
use crate::ast::{Comprehension, Expr, ExprKind, Literal};
use crate::error::{CompileErrorKind, ErrorAt};
use crate::functions::{operators, regex, time};
use crate::types::Type;

/// Elements of a literal must be of exactly one type, not even dyn beside another; only in arguments of `format` they
/// need not. Patterns of `format` must fit its arguments.
pub(super) fn literals_fit(checked: &Checked, node: &Expr, in_format: bool) -> Check<()> {
    crate::with_stack(|| literals_fit_within(checked, node, in_format))
}

fn literals_fit_within(checked: &Checked, node: &Expr, in_format: bool) -> Check<()> {
    // What an optional element adds is the value inside of it.
    let type_of = |node: &Expr, optional: bool| match checked.type_of(node) {
        Type::Optional(value) if optional => (**value).clone(),
        other => other.clone(),
    };
    let exactly = |first: Option<(&Expr, bool)>, node: &Expr, optional: bool| match first {
        Some((first, of_first)) if !in_format && type_of(first, of_first) != type_of(node, optional) => {
            let (expected, found) = (type_of(first, of_first), type_of(node, optional));
            let offset = checked.parsed_offsets.get(node.id as usize).copied().unwrap_or_default();
            let reason = format!("expected type '{expected}' but found '{found}'");
            Err(ErrorAt::new(offset as usize, CompileErrorKind::Type(reason)))
        }
        _ => Ok(()),
    };
    match &node.kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Struct(_) => Ok(()),
        ExprKind::Select { operand, .. } => literals_fit(checked, operand, in_format),
        ExprKind::Call { function, target, args } => {
            let is_format = &**function == "format";
            if is_format {
                format_fits(checked, node)?;
            }
            argument_fits(checked, function, args)?;
            let parts = target.as_deref().into_iter().chain(args);
            parts.into_iter().try_for_each(|part| literals_fit(checked, part, in_format || is_format))
        }
        ExprKind::List(elements) => {
            let first = elements.first().map(|(element, optional)| (element, *optional));
            for (element, optional) in elements {
                literals_fit(checked, element, in_format)?;
                exactly(first, element, *optional)?;
            }
            Ok(())
        }
        ExprKind::Map(entries) => {
            for (key, value, optional) in entries {
                literals_fit(checked, key, in_format)?;
                literals_fit(checked, value, in_format)?;
                exactly(entries.first().map(|(key, ..)| (key, false)), key, false)?;
                exactly(entries.first().map(|(_, value, optional)| (value, *optional)), value, *optional)?;
            }
            Ok(())
        }
        ExprKind::Comprehension(fold) => {
            let Comprehension { range, init, condition, step, result, .. } = &**fold;
            [range, init, condition, step, result]
                .into_iter()
                .try_for_each(|part| literals_fit(checked, part, in_format))
        }
    }
}

/// A pattern of `matches`, a duration and a timestamp must be one if they are literals. Upstream looks at these before
/// it converts other constants.
fn argument_fits(checked: &Checked, function: &str, args: &[Expr]) -> Check<()> {
    let [Expr { id, kind: ExprKind::Literal(literal) }] = args else { return Ok(()) };
    let fits = match (function, literal) {
        ("matches", Literal::String(pattern)) => regex::compile(pattern).map(|_| ()),
        ("duration", Literal::String(text)) => {
            time::parse_duration(text).map(|_| ()).ok_or_else(|| format!("'{text}'"))
        }
        // Declared up to 1.36, but no number is a duration.
        ("duration", Literal::Int(number)) => Err(number.to_string()),
        ("timestamp", Literal::String(text)) => {
            time::parse_timestamp(text).map(|_| ()).ok_or_else(|| format!("'{text}'"))
        }
        ("timestamp", Literal::Int(seconds)) => {
            operators::timestamp(i128::from(*seconds) * 1_000_000_000).map(|_| ()).map_err(|_| seconds.to_string())
        }
        _ => Ok(()),
    };
    fits.map_err(|reason| {
        let offset = checked.parsed_offsets.get(*id as usize).copied().unwrap_or_default();
        let reason = format!("invalid {function} argument: {reason}");
        ErrorAt::new(offset as usize, CompileErrorKind::Literal(reason))
    })
}

/// A literal pattern must fit the list of arguments that stands with it.
fn format_fits(checked: &Checked, node: &Expr) -> Check<()> {
    let ExprKind::Call { target: Some(target), args, .. } = &node.kind else { return Ok(()) };
    let (ExprKind::Literal(Literal::String(pattern)), [list]) = (&target.kind, args.as_slice()) else { return Ok(()) };
    let ExprKind::List(elements) = &list.kind else { return Ok(()) };
    let fail = |node: &Expr, reason: String| {
        let offset = checked.parsed_offsets.get(node.id as usize).copied().unwrap_or_default();
        Err(ErrorAt::new(offset as usize, CompileErrorKind::Type(format!("error during formatting: {reason}"))))
    };
    let mut args = elements.iter();
    let mut requested = 0;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' || chars.next_if_eq(&'%').is_some() {
            continue;
        }
        requested += 1;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = 0;
            while chars.next_if(char::is_ascii_digit).is_some() {
                digits += 1;
            }
            if digits == 0 && chars.peek().is_some() {
                return fail(node, "the precision is not a number".to_owned());
            }
        }
        let Some(verb) = chars.next() else { return fail(node, "unexpected end of string".to_owned()) };
        let Some((arg, _)) = args.next() else { return fail(node, format!("index {} out of range", requested - 1)) };
        let of = checked.type_of(arg);
        let fits = match (verb, of) {
            (_, Type::Dyn) if "sdofebxX".contains(verb) => true,
            ('s', _) => match not_printed(checked, arg) {
                None => true,
                Some(part) => return fail(part, format!("%s is not for {}", checked.type_of(part))),
            },
            ('d' | 'o', _) => matches!(of, Type::Int | Type::Uint),
            ('f' | 'e', _) => matches!(of, Type::Double | Type::String),
            ('b', _) => matches!(of, Type::Int | Type::Uint | Type::Bool),
            ('x' | 'X', _) => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
            _ => return fail(node, format!("unrecognized formatting clause \"{verb}\"")),
        };
        if !fits {
            return fail(arg, format!("%{verb} is not for {of}"));
        }
    }
    match args.next() {
        Some(_) => fail(node, format!("too many arguments (expected {requested}, got {})", elements.len())),
        None => Ok(()),
    }
}

/// What `%s` does not take: a value, or the first of those in it.
fn not_printed<'e>(checked: &Checked, node: &'e Expr) -> Option<&'e Expr> {
    let fits = matches!(
        checked.type_of(node),
        Type::Dyn
            | Type::List(_)
            | Type::Map(..)
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::String
            | Type::Timestamp
            | Type::Bytes
            | Type::Duration
            | Type::Type(_)
            | Type::Null
    );
    if !fits {
        return Some(node);
    }
    match &node.kind {
        ExprKind::List(elements) => elements.iter().find_map(|(element, _)| not_printed(checked, element)),
        ExprKind::Map(entries) => {
            entries.iter().find_map(|(key, value, _)| not_printed(checked, key).or_else(|| not_printed(checked, value)))
        }
        _ => None,
    }
}
