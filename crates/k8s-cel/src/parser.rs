//! Tokens to a tree.
//!
//! Recursive descent over CEL's grammar, macros expanded on the way (see [`super::macros`]). Nesting is limited as
//! cel-go limits it: at most 250 expressions inside of each other, parentheses included, and at most 250 levels of
//! operators, selections and calls before macros are expanded, parentheses not included. So the same texts are
//! refused, and no later pass needs more than a bounded stack. Chains of `&&` and `||` become balanced trees.

use std::sync::Arc;

use super::ast::{Expr, ExprKind, Literal, NodeId, op};
use super::error::{CompileErrorKind, ErrorAt};
use super::lexer::{Lexer, Token};
use super::macros;

/// Expressions inside of each other, and levels of a tree.
const MAX_DEPTH: u32 = 250;

/// Nodes of a tree. The longest text has fewer; only copies made by macros get here.
///
/// Differs: `cel-chains`. Upstream has no limit of its own, and takes exponential time and memory for chains of
/// `optMap`.
const MAX_NODES: usize = 100_000;

/// A tree and the byte offset of each of its nodes.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    pub(crate) offsets: Vec<u32>,
}

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub(crate) struct Parser {
    tokens: Vec<(Token, u32)>,
    next: usize,
    offsets: Vec<u32>,
    /// The levels below each node, as written.
    levels: Vec<u32>,
    /// Expressions that are open.
    open: u32,
}

type Parse<T> = Result<T, ErrorAt>;

/// Parses a text.
pub(crate) fn parse(text: &str) -> Parse<Parsed> {
    let tokens = Lexer::new(text).tokens()?;
    let mut parser = Parser { tokens, next: 0, offsets: Vec::new(), levels: Vec::new(), open: 0 };
    let expr = parser.expr()?;
    if parser.is_too_large() {
        return Err(ErrorAt::new(0, CompileErrorKind::TooLarge(MAX_NODES)));
    }
    match parser.peek() {
        Token::End => Ok(Parsed { expr, offsets: parser.offsets }),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(token, _)| token)
    }

    fn offset(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(_, offset)| *offset)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &'static str) -> Parse<()> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(symbol)) }
    }

    fn unexpected(&self, expected: &str) -> ErrorAt {
        let found = match self.peek() {
            Token::Ident(name) => format!("'{name}'"),
            Token::Int(_) | Token::Uint(_) | Token::Float(_) => "a number".to_owned(),
            Token::String(_) | Token::Bytes(_) => "a string".to_owned(),
            Token::Symbol(symbol) => format!("'{symbol}'"),
            Token::End => "'<EOF>'".to_owned(),
        };
        self.error(self.offset(), CompileErrorKind::Syntax(format!("unexpected {found}, expecting {expected}")))
    }

    pub(crate) fn error(&self, offset: u32, kind: CompileErrorKind) -> ErrorAt {
        ErrorAt::new(offset as usize, kind)
    }

    /// An error about a node.
    pub(crate) fn error_at(&self, node: &Expr, reason: &str) -> ErrorAt {
        let offset = self.offsets.get(node.id as usize).copied().unwrap_or_default();
        self.error(offset, CompileErrorKind::Syntax(reason.to_owned()))
    }

    pub(crate) fn offset_of(&self, node: &Expr) -> u32 {
        self.offsets.get(node.id as usize).copied().unwrap_or_default()
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.offsets.len() > MAX_NODES
    }

    /// A new node at a byte offset.
    pub(crate) fn node(&mut self, offset: u32, kind: ExprKind) -> Expr {
        let levels = match &kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Struct(_) | ExprKind::Comprehension(_) => 0,
            ExprKind::Select { operand, .. } => self.above([&**operand]),
            ExprKind::Call { target, args, .. } => self.above(target.as_deref().into_iter().chain(args)),
            // Brackets are no level of their own.
            ExprKind::List(elements) => self.above(elements.iter().map(|(element, _)| element)) - 1,
            ExprKind::Map(entries) => self.above(entries.iter().flat_map(|(key, value, _)| [key, value])) - 1,
        };
        let id = NodeId::try_from(self.offsets.len()).unwrap_or(NodeId::MAX);
        self.offsets.push(offset);
        self.levels.push(levels);
        Expr { id, kind }
    }

    /// One level above some nodes.
    pub(crate) fn above<'e>(&self, nodes: impl IntoIterator<Item = &'e Expr>) -> u32 {
        let levels = |node: &Expr| self.levels.get(node.id as usize).copied().unwrap_or_default();
        nodes.into_iter().map(levels).max().unwrap_or_default().saturating_add(1)
    }

    /// Gives a node that a macro made the levels of the call as it was written.
    pub(crate) fn with_levels(&mut self, node: Expr, levels: u32) -> Expr {
        if let Some(slot) = self.levels.get_mut(node.id as usize) {
            *slot = levels;
        }
        node
    }

    /// Refuses a node that is too deep.
    fn bounded(&self, node: Expr) -> Parse<Expr> {
        match self.levels.get(node.id as usize) {
            Some(levels) if *levels > MAX_DEPTH => Err(self.error(self.offset(), CompileErrorKind::TooDeep(MAX_DEPTH))),
            _ => Ok(node),
        }
    }

    pub(crate) fn call(&mut self, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
        self.node(offset, ExprKind::Call { function: function.into(), target: None, args })
    }

    fn expr(&mut self) -> Parse<Expr> {
        super::with_stack(|| self.expr_within())
    }

    fn expr_within(&mut self) -> Parse<Expr> {
        self.open += 1;
        if self.open > MAX_DEPTH {
            return Err(self.error(self.offset(), CompileErrorKind::TooDeep(MAX_DEPTH)));
        }
        let condition = self.logical(op::OR, "||")?;
        let offset = self.offset();
        let expr = if self.accept("?") {
            let then = self.logical(op::OR, "||")?;
            self.expect(":")?;
            let otherwise = self.expr()?;
            self.call(offset, op::CONDITIONAL, vec![condition, then, otherwise])
        } else {
            condition
        };
        self.open -= 1;
        self.bounded(expr)
    }

    fn logical(&mut self, function: &'static str, symbol: &str) -> Parse<Expr> {
        let term = |parser: &mut Self| {
            if function == op::OR { parser.logical(op::AND, "&&") } else { parser.relation() }
        };
        let first = term(self)?;
        if !self.is(symbol) {
            return Ok(first);
        }
        let mut terms = vec![first];
        let mut offsets = Vec::new();
        while self.is(symbol) {
            offsets.push(self.offset());
            self.next += 1;
            terms.push(term(self)?);
        }
        let levels = self.above(&terms);
        let node = self.balance(function, terms, &offsets);
        Ok(self.with_levels(node, levels))
    }

    /// A tree of logarithmic depth, evaluated from left to right all the same.
    fn balance(&mut self, function: &str, mut terms: Vec<Expr>, offsets: &[u32]) -> Expr {
        if terms.len() < 2 {
            // At least one term is always there.
            return terms.pop().unwrap_or(Expr { id: 0, kind: ExprKind::Literal(Literal::Null) });
        }
        let right = terms.split_off(terms.len().div_ceil(2));
        let middle = terms.len() - 1;
        let offset = offsets.get(middle).copied().unwrap_or_default();
        let left = self.balance(function, terms, offsets.get(..middle).unwrap_or_default());
        let right = self.balance(function, right, offsets.get(middle + 1..).unwrap_or_default());
        self.call(offset, function, vec![left, right])
    }

    fn relation(&mut self) -> Parse<Expr> {
        let operator = |token: &Token| match token {
            Token::Symbol("<") => Some(op::LESS),
            Token::Symbol("<=") => Some(op::LESS_EQUALS),
            Token::Symbol(">=") => Some(op::GREATER_EQUALS),
            Token::Symbol(">") => Some(op::GREATER),
            Token::Symbol("==") => Some(op::EQUALS),
            Token::Symbol("!=") => Some(op::NOT_EQUALS),
            Token::Symbol("in") => Some(op::IN),
            _ => None,
        };
        let mut left = self.calc(0)?;
        while let Some(function) = operator(self.peek()) {
            let offset = self.offset();
            self.next += 1;
            let right = self.calc(0)?;
            let node = self.call(offset, function, vec![left, right]);
            left = self.bounded(node)?;
        }
        Ok(left)
    }

    /// Arithmetic: sums at level 0, products at level 1.
    fn calc(&mut self, level: u8) -> Parse<Expr> {
        let operator = |token: &Token| match token {
            Token::Symbol("*") => Some((op::MULTIPLY, 1)),
            Token::Symbol("/") => Some((op::DIVIDE, 1)),
            Token::Symbol("%") => Some((op::MODULO, 1)),
            Token::Symbol("+") => Some((op::ADD, 0)),
            Token::Symbol("-") => Some((op::SUBTRACT, 0)),
            _ => None,
        };
        let mut left = self.unary()?;
        while let Some((function, found)) = operator(self.peek()) {
            if found < level {
                break;
            }
            let offset = self.offset();
            self.next += 1;
            let right = self.calc(found + 1)?;
            let node = self.call(offset, function, vec![left, right]);
            left = self.bounded(node)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse<Expr> {
        let offset = self.offset();
        for (symbol, function) in [("!", op::NOT), ("-", op::NEGATE)] {
            if !self.is(symbol) || (symbol == "-" && self.is_signed_number()) {
                continue;
            }
            let mut count = 0u32;
            while self.accept(symbol) {
                count += 1;
            }
            let operand = self.member()?;
            return Ok(if count.is_multiple_of(2) { operand } else { self.call(offset, function, vec![operand]) });
        }
        self.member()
    }

    /// Whether a `-` stands directly before a number, and so is its sign.
    fn is_signed_number(&self) -> bool {
        let following = self.tokens.get(self.next + 1).map(|(token, _)| token);
        self.is("-") && matches!(following, Some(Token::Int(_) | Token::Float(_)))
    }

    fn member(&mut self) -> Parse<Expr> {
        let mut operand = self.primary()?;
        loop {
            let offset = self.offset();
            if self.accept(".") {
                operand = self.select_or_call(operand, offset)?;
            } else if self.accept("[") {
                let function = if self.accept("?") { op::OPTIONAL_INDEX } else { op::INDEX };
                let index = self.expr()?;
                self.expect("]")?;
                operand = self.call(offset, function, vec![operand, index]);
            } else {
                break;
            }
            operand = self.bounded(operand)?;
        }
        Ok(operand)
    }

    fn select_or_call(&mut self, operand: Expr, dot: u32) -> Parse<Expr> {
        let optional = self.accept("?");
        let name_offset = self.offset();
        let Token::Ident(name) = self.peek().clone() else { return Err(self.unexpected("a field name")) };
        self.next += 1;
        let paren = self.offset();
        if !optional && self.accept("(") {
            let args = self.arguments(")")?;
            let levels = self.above(std::iter::once(&operand).chain(&args));
            let node = macros::receiver_call(self, paren, operand, name, args)?;
            return Ok(self.with_levels(node, levels));
        }
        Ok(if optional {
            let field = self.node(name_offset, ExprKind::Literal(Literal::String(name)));
            self.call(dot, op::OPTIONAL_SELECT, vec![operand, field])
        } else {
            self.node(dot, ExprKind::Select { operand: Box::new(operand), field: name, test: false })
        })
    }

    /// Arguments up to a closing bracket, which is consumed.
    fn arguments(&mut self, close: &'static str) -> Parse<Vec<Expr>> {
        let mut args = Vec::new();
        if self.accept(close) {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.accept(",") {
                self.expect(close)?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Parse<Expr> {
        let offset = self.offset();
        if self.is_signed_number() {
            self.next += 1;
            return self.number(offset, true);
        }
        match self.peek().clone() {
            Token::Int(_) | Token::Uint(_) | Token::Float(_) => self.number(offset, false),
            Token::String(text) => {
                self.next += 1;
                Ok(self.node(offset, ExprKind::Literal(Literal::String(text))))
            }
            Token::Bytes(bytes) => {
                self.next += 1;
                Ok(self.node(offset, ExprKind::Literal(Literal::Bytes(bytes))))
            }
            Token::Symbol("true") => Ok(self.literal(Literal::Bool(true))),
            Token::Symbol("false") => Ok(self.literal(Literal::Bool(false))),
            Token::Symbol("null") => Ok(self.literal(Literal::Null)),
            Token::Symbol("(") => {
                self.next += 1;
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => self.list(),
            Token::Symbol("{") => self.map(),
            Token::Symbol(".") => {
                self.next += 1;
                match self.advance() {
                    Token::Ident(name) => self.absolute_name(offset, &name),
                    _ => {
                        self.next -= 1;
                        Err(self.unexpected("a name"))
                    }
                }
            }
            Token::Ident(name) => {
                self.next += 1;
                self.name(offset, name)
            }
            Token::Symbol(_) | Token::End => Err(self.unexpected("an expression")),
        }
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        let offset = self.offset();
        self.next += 1;
        self.node(offset, ExprKind::Literal(literal))
    }

    fn number(&mut self, offset: u32, negative: bool) -> Parse<Expr> {
        let bad =
            |what: &str| ErrorAt::new(offset as usize, CompileErrorKind::Syntax(format!("invalid {what} literal")));
        let digits = |digits: &str| match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        let literal = match self.advance() {
            Token::Int(text) => {
                let value = digits(&text).map(i128::from).ok_or_else(|| bad("int"))?;
                let signed = if negative { -value } else { value };
                Literal::Int(i64::try_from(signed).map_err(|_| bad("int"))?)
            }
            Token::Uint(text) => Literal::Uint(digits(&text).ok_or_else(|| bad("uint"))?),
            Token::Float(value) => Literal::Double(if negative { -value } else { value }),
            _ => return Err(bad("number")),
        };
        Ok(self.node(offset, ExprKind::Literal(literal)))
    }

    /// `.name` keeps its dot: it is no macro, and what it refers to is the checker's.
    fn absolute_name(&mut self, dot: u32, name: &str) -> Parse<Expr> {
        // Its place is that of the name, unless it is refused.
        let offset = self.tokens.get(self.next.saturating_sub(1)).map_or(dot, |(_, offset)| *offset);
        let refused_at = if RESERVED.contains(&name) { dot } else { offset };
        self.name(refused_at, format!(".{name}").into())
    }

    fn name(&mut self, offset: u32, name: Arc<str>) -> Parse<Expr> {
        if let Some((brace, message)) = self.message_name(&name) {
            return self.message(brace, message);
        }
        let bare = name.strip_prefix('.').unwrap_or(&name);
        if RESERVED.contains(&bare) {
            return Err(self.error(offset, CompileErrorKind::Syntax(format!("reserved identifier: {bare}"))));
        }
        let paren = self.offset();
        if self.accept("(") {
            let args = self.arguments(")")?;
            return macros::global_call(self, paren, name, args);
        }
        Ok(self.node(offset, ExprKind::Ident(name)))
    }

    /// The name of a message type and the place of its brace, if `.b.c{` follows; consumes up to the brace.
    fn message_name(&mut self, first: &str) -> Option<(u32, Arc<str>)> {
        let mut name = first.to_owned();
        let mut ahead = self.next;
        let at = |index: usize| self.tokens.get(index).map(|(token, _)| token);
        while let (Some(Token::Symbol(".")), Some(Token::Ident(part))) = (at(ahead), at(ahead + 1)) {
            name.push('.');
            name.push_str(part);
            ahead += 2;
        }
        let (Token::Symbol("{"), brace) = self.tokens.get(ahead)? else { return None };
        let brace = *brace;
        self.next = ahead + 1;
        Some((brace, name.into()))
    }

    /// Whether a list or map ends here. A comma may stand in an empty one.
    fn closes(&mut self, close: &'static str, is_empty: bool) -> Parse<bool> {
        if is_empty && self.accept(",") {
            self.expect(close)?;
            return Ok(true);
        }
        Ok(self.accept(close))
    }

    /// The fields of a message are read and forgotten: no message type can be built, see the checker.
    fn message(&mut self, offset: u32, name: Arc<str>) -> Parse<Expr> {
        let mut is_empty = true;
        while !self.closes("}", is_empty)? {
            is_empty = false;
            self.accept("?");
            let Token::Ident(_) = self.advance() else {
                self.next -= 1;
                return Err(self.unexpected("a field name"));
            };
            self.expect(":")?;
            self.expr()?;
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.node(offset, ExprKind::Struct(name)))
    }

    fn list(&mut self) -> Parse<Expr> {
        let offset = self.offset();
        self.next += 1;
        let mut elements = Vec::new();
        while !self.closes("]", elements.is_empty())? {
            let optional = self.accept("?");
            elements.push((self.expr()?, optional));
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(self.node(offset, ExprKind::List(elements)))
    }

    fn map(&mut self) -> Parse<Expr> {
        let offset = self.offset();
        self.next += 1;
        let mut entries = Vec::new();
        while !self.closes("}", entries.is_empty())? {
            let optional = self.accept("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push((key, self.expr()?, optional));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.node(offset, ExprKind::Map(entries)))
    }
}
