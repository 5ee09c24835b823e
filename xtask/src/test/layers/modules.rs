//! A Rust source file as its modules: what each declares, and which paths it names outside tests.
//!
//! Reads tokens and not a syntax tree, because paths inside macro calls count too. Attributes and whatever
//! `#[cfg(test)]` stands before are left out. A method on a value that came from elsewhere names no path, so it is not
//! seen.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// Identifiers from a crate or a module downwards: `["crate", "plan", "Plan"]`.
pub(super) type Path = Vec<String>;

/// A path as it is written, and its line, counted from 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reference {
    pub(super) path: Path,
    pub(super) line: usize,
}

#[derive(Debug, Default)]
pub(super) struct Module {
    /// From the crate's root, which has none: `["simulation", "packing"]`.
    pub(super) path: Path,
    /// Modules declared in it, with a body or a file.
    pub(super) children: BTreeSet<String>,
    /// Child modules that are compiled for tests only.
    pub(super) test_children: BTreeSet<String>,
    /// What `use` makes of a name.
    pub(super) bindings: BTreeMap<String, Path>,
    pub(super) references: Vec<Reference>,
}

/// The modules of a file whose own module is `path`: that one first, then those with a body inside it.
pub(super) fn read(source: &str, path: Path) -> Result<Vec<Module>> {
    let tokens: TokenStream = source.parse().map_err(|error| anyhow!("{error}"))?;
    let mut reader = Reader { modules: vec![Module { path, ..Module::default() }], open: 0 };
    reader.tokens(&tokens.into_iter().collect::<Vec<_>>());
    Ok(reader.modules)
}

struct Reader {
    modules: Vec<Module>,
    /// The module that the tokens at hand belong to.
    open: usize,
}

impl Reader {
    fn module(&mut self) -> &mut Module {
        &mut self.modules[self.open]
    }

    fn tokens(&mut self, tokens: &[TokenTree]) {
        let mut index = 0;
        while let Some(token) = tokens.get(index) {
            index = match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => self.attribute(tokens, index),
                TokenTree::Ident(word) if word == "use" && !is_punct(tokens, index + 1, '<') => {
                    self.imports(tokens, index)
                }
                TokenTree::Ident(word) if word == "mod" => self.declaration(tokens, index),
                TokenTree::Ident(_) => self.path(tokens, index),
                TokenTree::Group(group) => {
                    self.tokens(&group.stream().into_iter().collect::<Vec<_>>());
                    index + 1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => index + 1,
            };
        }
    }

    /// Leaves out an attribute, and what follows it if only tests have that. Answers where to read on.
    fn attribute(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let inner = usize::from(is_punct(tokens, start + 1, '!'));
        let Some(TokenTree::Group(group)) = tokens.get(start + 1 + inner) else { return start + 1 };
        let after = start + 2 + inner;
        if !is_of_tests(group.stream()) {
            return after;
        }
        if inner == 1 {
            return tokens.len();
        }
        let end = end_of_item(tokens, after);
        let is_module = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "mod");
        if let Some(position) = tokens[after..end].iter().position(is_module)
            && let Some(TokenTree::Ident(name)) = tokens.get(after + position + 1)
        {
            self.module().test_children.insert(name.to_string());
        }
        end
    }

    fn declaration(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(start + 1) else { return start + 1 };
        self.module().children.insert(name.to_string());
        let Some(TokenTree::Group(body)) = tokens.get(start + 2) else { return start + 2 };
        let outer = self.open;
        let mut path = self.module().path.clone();
        path.push(name.to_string());
        self.open = self.modules.len();
        self.modules.push(Module { path, ..Module::default() });
        self.tokens(&body.stream().into_iter().collect::<Vec<_>>());
        self.open = outer;
        start + 3
    }

    /// Reads `use …;`.
    fn imports(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let length = tokens[start..].iter().position(|token| is(token, ';')).unwrap_or(tokens.len() - start);
        self.import_tree(&tokens[start + 1..start + length], &[]);
        start + length
    }

    /// Reads a tree of imports, or several with commas between, that stand behind `prefix`.
    fn import_tree(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        for tree in tokens.split(|token| is(token, ',')) {
            let mut path = prefix.to_vec();
            let mut alias = None;
            let mut line = 0;
            let mut nested = None;
            let mut words = tree.iter();
            while let Some(token) = words.next() {
                match token {
                    TokenTree::Ident(word) if word == "as" => alias = words.next().map(ToString::to_string),
                    TokenTree::Ident(word) => {
                        line = line_of(word);
                        path.push(word.to_string());
                    }
                    TokenTree::Group(group) => nested = Some(group.stream().into_iter().collect::<Vec<_>>()),
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
            }
            if let Some(nested) = nested {
                self.import_tree(&nested, &path);
            } else if line > 0 {
                self.import(path, alias, line);
            }
        }
    }

    /// Takes down one imported path. `a::{self}` imports `a`.
    fn import(&mut self, mut path: Path, alias: Option<String>, line: usize) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = alias.or_else(|| path.last().cloned()) {
            self.module().bindings.insert(name, path.clone());
        }
        self.module().references.push(Reference { path, line });
    }

    /// Reads `a::b::c`. A name alone is no reference, nor is a field or what follows `>::`.
    fn path(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let mut path = Vec::new();
        let mut index = start;
        let mut line = 0;
        while let Some(TokenTree::Ident(word)) = tokens.get(index) {
            if path.is_empty() {
                line = line_of(word);
            }
            path.push(word.to_string());
            index += 1;
            let more = is_punct(tokens, index, ':') && is_punct(tokens, index + 1, ':');
            if !more || !matches!(tokens.get(index + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            index += 2;
        }
        if path.len() > 1 && begins_path(tokens, start) {
            self.module().references.push(Reference { path, line });
        }
        index
    }
}

/// Whether the identifier at `index` is the first of its path: no field and no rest of a path.
fn begins_path(tokens: &[TokenTree], index: usize) -> bool {
    let before = |back: usize| index.checked_sub(back).and_then(|at| tokens.get(at));
    match before(1) {
        Some(token) if is(token, '.') => before(2).is_some_and(|token| is(token, '.')),
        // `>::name` goes on with a path; `: name` gives a type, and `<T>(): ::name` does not occur.
        Some(token) if is(token, ':') => {
            !before(2).is_some_and(|token| is(token, ':')) || before(3).is_none_or(begins_at)
        }
        _ => true,
    }
}

/// Whether `::` after this token begins a path, as in `use ::a` and `(::a::b())`.
fn begins_at(before: &TokenTree) -> bool {
    matches!(before, TokenTree::Punct(punct) if punct.as_char() != '>')
}

/// Whether an attribute's text keeps what follows for tests: `cfg(test)` and `cfg(all(test, …))`.
fn is_of_tests(attribute: TokenStream) -> bool {
    let text: String = attribute.into_iter().map(|token| token.to_string()).collect::<String>();
    let text: String = text.split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Where the item, field or statement that begins at `start` ends.
fn end_of_item(tokens: &[TokenTree], start: usize) -> usize {
    const ITEMS: [&str; 13] = [
        "async",
        "const",
        "enum",
        "extern",
        "fn",
        "impl",
        "macro_rules",
        "mod",
        "static",
        "struct",
        "trait",
        "type",
        "unsafe",
    ];
    let mut index = start;
    while is_punct(tokens, index, '#') {
        index += 2;
    }
    if matches!(tokens.get(index), Some(TokenTree::Ident(word)) if word == "pub") {
        index += 1;
        let scope =
            |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        index += usize::from(tokens.get(index).is_some_and(scope));
    }
    let first = match tokens.get(index) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    };
    let is_item = ITEMS.contains(&first.as_str());
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && first != "use",
        token => is(token, ';') || (!is_item && first != "use" && is(token, ',')),
    };
    tokens[index..].iter().position(ends).map_or(tokens.len(), |position| index + position + 1)
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_punct(tokens: &[TokenTree], index: usize, character: char) -> bool {
    tokens.get(index).is_some_and(|token| is(token, character))
}

fn line_of(word: &Ident) -> usize {
    word.span().start().line
}
