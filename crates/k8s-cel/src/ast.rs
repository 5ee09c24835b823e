//! The tree of an expression, after macros are expanded.
//!
//! Every node has an id of its own, dense from 0; what is known about a node (its place in the text, its type, the
//! overloads of a call) is kept beside the tree, indexed by id. Depth is bounded by the parser.

use std::sync::Arc;

/// A node of the tree.
pub(crate) type NodeId = u32;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) id: NodeId,
    pub(crate) kind: ExprKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`, or `has(operand.field)` if `test`.
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        test: bool,
    },
    /// A function or operator; operators by their internal name, `_==_`.
    Call {
        function: Arc<str>,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// Elements, each with whether it is optional (`?`).
    List(Vec<(Expr, bool)>),
    /// Keys and values, each with whether the entry is optional.
    Map(Vec<(Expr, Expr, bool)>),
    /// A message of a type that is named.
    Struct(Arc<str>),
    Comprehension(Box<Comprehension>),
}

/// A fold over a list or map. `cel.bind` is one over an empty list whose accumulator is the bound variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) var: Arc<str>,
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Comprehension {
    /// Whether this only gives a value a name.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, ExprKind::List(elements) if elements.is_empty())
            && self.condition.kind == ExprKind::Literal(Literal::Bool(false))
            && &*self.accumulator != ACCUMULATOR
    }
}

/// The accumulator of macros; no identifier can be spelled like it.
pub(crate) const ACCUMULATOR: &str = "@result";

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// The internal names of operators.
pub(crate) mod op {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUBTRACT: &str = "_-_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}

/// The expression as a dotted name: `a.b.c`, if it is nothing but that.
pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select { operand, field, test: false } => {
            let mut name = qualified_name(operand)?;
            name.push('.');
            name.push_str(field);
            Some(name)
        }
        ExprKind::Select { .. }
        | ExprKind::Literal(_)
        | ExprKind::Call { .. }
        | ExprKind::List(_)
        | ExprKind::Map(_)
        | ExprKind::Struct(_)
        | ExprKind::Comprehension(_) => None,
    }
}
