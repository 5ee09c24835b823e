//! The sources of a crate of the SDK, and which of them some operations need.
//!
//! The crates are generated, so their form is regular. Each operation, type and codec has a file of its own, and names
//! others by whole paths (`crate::types::Tag`). Some files only list the others; of these, and of those with helpers
//! for all, the lines count one by one. What is reached from the operations is kept. What is missed does not compile,
//! so a mistake here cannot go unseen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::test::sources::rust_files;

/// Modules that list others, or hold helpers for all.
const LISTS: [&str; 12] = [
    "",
    "client",
    "error_type_registry",
    "lens",
    "operation",
    "protocol_serde",
    "serde_util",
    "type_registry",
    "types",
    "types::builders",
    "types::error",
    "types::error::builders",
];
/// Modules whose files are there for single operations and types.
const PARTS: [&str; 4] = ["client", "operation", "protocol_serde", "types"];
/// What every operation is part of and none needs: an error of any operation, and waiting for states.
const DROPPED: [&str; 2] = ["error_meta", "waiters"];
/// Parts of no operation.
const SHARED: &str = "client::customize";

/// The files by the path of their module; that of `lib.rs` is empty.
pub(super) struct Sources {
    modules: BTreeMap<String, Module>,
}

struct Module {
    file: PathBuf,
    items: Vec<Item>,
}

/// A piece of a module of [`LISTS`], or a whole other module.
struct Item {
    text: String,
    kind: Kind,
}

enum Kind {
    /// It is there if its module is.
    Plain,
    /// It names a module, and is there if that is.
    Link(String),
    /// It names a type by its path, and is there if that is.
    Entry(String),
    /// It is a function, and is there if something that is kept names it.
    Function(String),
    /// It is not wanted.
    Dropped,
}

/// A module, or a function of a module of [`LISTS`].
type Node = String;

impl Sources {
    /// Reads the files below a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for path in rust_files(folder)? {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let file = path.strip_prefix(folder).context("a file below the folder")?.to_owned();
            let name = module_of(&file);
            let items = items(&name, &without_comments(&text));
            modules.insert(name, Module { file, items });
        }
        Ok(Self { modules })
    }

    /// All operations.
    pub(super) fn operations(&self) -> Vec<String> {
        let names = self.modules.keys().filter_map(|name| name.strip_prefix("operation::"));
        names.filter(|name| !name.contains("::")).map(str::to_owned).collect()
    }

    /// The files that some operations need, with what they need of them.
    pub(super) fn trimmed(&self, operations: &BTreeSet<String>) -> Vec<(&Path, String)> {
        let kept = self.reached(operations);
        let is_kept = |module: &str, item: &Item| match &item.kind {
            Kind::Plain => true,
            Kind::Link(target) => kept.contains(target),
            Kind::Entry(path) => self.resolve(path).is_some_and(|target| kept.contains(&target)),
            Kind::Function(name) => kept.contains(&join(module, name)),
            Kind::Dropped => false,
        };
        let modules = self.modules.iter().filter(|(name, _)| kept.contains(*name));
        let text = |(name, module): (&String, &'_ Module)| {
            let items = module.items.iter().filter(|item| is_kept(name, item));
            items.map(|item| item.text.as_str()).collect::<String>()
        };
        modules.map(|it| (it.1.file.as_path(), text(it))).collect()
    }

    /// What some operations need: modules, and functions of lists.
    fn reached(&self, operations: &BTreeSet<String>) -> BTreeSet<Node> {
        let mut open: Vec<Node> = self.modules.keys().filter(|name| is_wanted(name, operations)).cloned().collect();
        let mut kept = BTreeSet::new();
        while let Some(node) = open.pop() {
            if !kept.insert(node.clone()) {
                continue;
            }
            for text in self.texts(&node) {
                open.extend(paths(text).filter_map(|path| self.resolve(path)));
            }
        }
        kept
    }

    /// What of a node names others, wherever the node is kept.
    fn texts(&self, node: &str) -> Vec<&str> {
        let of_module = |module: &str, is_it: &dyn Fn(&Kind) -> bool| {
            let items = self.modules.get(module).map_or(&[][..], |module| &module.items);
            items.iter().filter(|item| is_it(&item.kind)).map(|item| item.text.as_str()).collect()
        };
        match node.rsplit_once("::") {
            Some((module, function)) if !self.modules.contains_key(node) => {
                of_module(module, &|kind| matches!(kind, Kind::Function(name) if name == function))
            }
            _ => of_module(node, &|kind| matches!(kind, Kind::Plain)),
        }
    }

    /// What a path (`types::Tag`) leads to.
    fn resolve(&self, path: &str) -> Option<Node> {
        let parts: Vec<&str> = path.split("::").collect();
        let (length, module) = (1..=parts.len()).rev().find_map(|length| {
            let name = parts[..length].join("::");
            self.modules.get(&name).map(|module| (length, (name, module)))
        })?;
        let (name, module) = module;
        let Some(wanted) = parts.get(length) else { return Some(name) };
        let ends = format!("::{wanted};\n");
        for item in &module.items {
            match &item.kind {
                Kind::Link(target) if item.text.ends_with(&ends) => return Some(target.clone()),
                Kind::Function(function) if function == wanted => return Some(join(&name, function)),
                _ => {}
            }
        }
        Some(name)
    }
}

/// Whether a module is kept, whatever is reached.
fn is_wanted(name: &str, operations: &BTreeSet<String>) -> bool {
    let mut parts = name.split("::");
    let first = parts.next().unwrap_or_default();
    let of_operation =
        matches!(first, "client" | "operation") && parts.next().is_some_and(|it| operations.contains(it));
    let is_part = PARTS.contains(&first) && !LISTS.contains(&name) && !name.starts_with(SHARED);
    (of_operation || !is_part) && !DROPPED.contains(&first)
}

fn module_of(file: &Path) -> String {
    let parts: Vec<_> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts == ["lib"] { String::new() } else { parts.join("::") }
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The text without comments, which are most of it, and without lints, which are not ours to heed.
fn without_comments(text: &str) -> String {
    let is_code = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("//") && !line.starts_with("#![")
    };
    text.lines().filter(is_code).map(|line| format!("{line}\n")).collect()
}

fn items(module: &str, text: &str) -> Vec<Item> {
    if module.is_empty() {
        let mut items = list_items(module, text);
        items.insert(0, Item { text: "#![allow(warnings)]\n".to_owned(), kind: Kind::Plain });
        return items;
    }
    if module.ends_with("type_registry") {
        return registry_items(text);
    }
    if LISTS.contains(&module) {
        return list_items(module, text);
    }
    vec![Item { text: text.to_owned(), kind: Kind::Plain }]
}

/// An item ends with a line that is not indented and ends as items do.
fn list_items(module: &str, text: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut item = String::new();
    for line in text.lines() {
        item.push_str(line);
        item.push('\n');
        if !line.starts_with(' ') && line.ends_with(['}', ';']) {
            let kind = kind(module, &item);
            items.push(Item { text: std::mem::take(&mut item), kind });
        }
    }
    items.push(Item { text: item, kind: Kind::Plain });
    items
}

fn kind(module: &str, item: &str) -> Kind {
    let declaration = item.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    let words = declaration.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    let line = words.strip_suffix(';').unwrap_or(words);
    let is_of = |name: &&str| line.strip_prefix("mod ") == Some(*name) || line.starts_with(&format!("use {name}::"));
    if DROPPED.iter().any(is_of) || ["trait Waiters ", "impl Waiters "].iter().any(|start| words.starts_with(start)) {
        return Kind::Dropped;
    }
    if let Some(child) = line.strip_prefix("mod ") {
        return Kind::Link(join(module, child));
    }
    if let Some((path, _)) = line.strip_prefix("use crate::").and_then(|path| path.rsplit_once("::")) {
        return Kind::Link(path.to_owned());
    }
    let function = words.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
    match function {
        Some(name) if matches!(module, "lens" | "serde_util") => Kind::Function(name.to_owned()),
        _ => Kind::Plain,
    }
}

/// A registry is one expression, with a call for each type.
fn registry_items(text: &str) -> Vec<Item> {
    let starts: Vec<usize> = text.match_indices(".insert_").map(|(start, _)| start).collect();
    let end = text.rfind(".build()").unwrap_or(text.len());
    let mut ends = starts.iter().skip(1).copied().chain([end]);
    let mut items = vec![Item { text: text[..starts.first().copied().unwrap_or(end)].to_owned(), kind: Kind::Plain }];
    for start in &starts {
        let call = &text[*start..ends.next().unwrap_or(end)];
        let path = paths(call).next().and_then(|path| path.strip_suffix("::SCHEMA")).unwrap_or_default();
        items.push(Item { text: call.to_owned(), kind: Kind::Entry(path.to_owned()) });
    }
    items.push(Item { text: text[end..].to_owned(), kind: Kind::Plain });
    items
}

/// The paths of a text that begin at the crate's root, without the word `crate`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("crate::").map(|(start, found)| start + found.len());
    starts.map(|start| {
        let rest = &text[start..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
        rest[..end.unwrap_or(rest.len())].trim_end_matches(':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        let module = |(file, text): &(&str, &str)| {
            let name = module_of(Path::new(file));
            let items = items(&name, &without_comments(text));
            (name, Module { file: file.into(), items })
        };
        Sources { modules: files.iter().map(module).collect() }
    }

    /// A crate of two operations, `get_a` with a type and a helper of its own, and `get_b`.
    fn two_operations() -> Sources {
        sources(&[
            (
                "lib.rs",
                "//! Words.\n#![warn(missing_docs)]\npub use error_meta::Error;\nmod error_meta;\nmod operation;\n\
                 pub mod types;\nmod lens;\n",
            ),
            ("error_meta.rs", "pub enum Error {\n    B(crate::types::B),\n}\n"),
            (
                "client.rs",
                "pub struct Client;\npub trait Waiters {\n    fn wait(&self);\n}\nmod get_a;\n\nmod get_b;\n",
            ),
            ("client/get_a.rs", "impl super::Client {}\n"),
            ("client/get_b.rs", "impl super::Client {}\n"),
            ("operation.rs", "/// Of a.\npub mod get_a;\n\npub mod get_b;\n"),
            (
                "operation/get_a.rs",
                "pub struct GetA(crate::types::builders::ABuilder);\nfn f() {\n    crate::lens::of_a();\n}\n",
            ),
            ("operation/get_b.rs", "pub struct GetB(crate::types::B);\n"),
            (
                "types.rs",
                "pub use crate::types::_a::A;\npub use crate::types::_b::B;\nmod _a;\nmod _b;\npub mod builders;\n",
            ),
            ("types/builders.rs", "pub use crate::types::_a::ABuilder;\npub use crate::types::_b::BBuilder;\n"),
            ("types/_a.rs", "pub struct A;\npub struct ABuilder;\n"),
            ("types/_b.rs", "pub struct B;\npub struct BBuilder;\n"),
            ("lens.rs", "pub(crate) fn of_a(\n    input: u8,\n) {\n}\npub(crate) fn of_b() {\n}\n"),
            (
                "type_registry.rs",
                "static R: T = T::builder()\n  .insert_shape(\n  crate::types::A::SCHEMA,\n)\n\
                 .insert_shape(\n  crate::types::B::SCHEMA,\n)\n  .build();\n",
            ),
        ])
    }

    #[test]
    fn what_an_operation_needs_is_kept_and_the_rest_is_not() {
        let sources = two_operations();
        assert_eq!(sources.operations(), ["get_a", "get_b"]);
        let trimmed = sources.trimmed(&BTreeSet::from(["get_a".to_owned()]));
        let trimmed: BTreeMap<_, _> = trimmed.iter().map(|(file, text)| (file.to_str().unwrap(), &**text)).collect();
        let files: Vec<_> = trimmed.keys().copied().collect();
        assert_eq!(
            files,
            [
                "client.rs",
                "client/get_a.rs",
                "lens.rs",
                "lib.rs",
                "operation.rs",
                "operation/get_a.rs",
                "type_registry.rs",
                "types.rs",
                "types/_a.rs",
                "types/builders.rs"
            ]
        );
        assert_eq!(trimmed["lib.rs"], "#![allow(warnings)]\nmod operation;\npub mod types;\nmod lens;\n");
        assert_eq!(trimmed["client.rs"], "pub struct Client;\nmod get_a;\n");
        assert_eq!(trimmed["types.rs"], "pub use crate::types::_a::A;\nmod _a;\npub mod builders;\n");
        assert_eq!(trimmed["types/builders.rs"], "pub use crate::types::_a::ABuilder;\n");
        assert_eq!(trimmed["lens.rs"], "pub(crate) fn of_a(\n    input: u8,\n) {\n}\n");
        assert!(trimmed["type_registry.rs"].contains("types::A::SCHEMA"));
        assert!(!trimmed["type_registry.rs"].contains("types::B::SCHEMA"));
    }

    #[test]
    fn with_all_operations_only_errors_of_any_operation_and_waiting_are_gone() {
        let sources = two_operations();
        let all: BTreeSet<_> = sources.operations().into_iter().collect();
        let kept: Vec<_> = sources.trimmed(&all).into_iter().map(|(file, _)| file.to_owned()).collect();
        assert_eq!(kept.len(), sources.modules.len() - 1);
        assert!(!kept.contains(&PathBuf::from("error_meta.rs")));
    }
}
