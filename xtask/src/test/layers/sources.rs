//! The modules of all our crates, and to which of them a path leads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use anyhow::{Context, Result};

use super::modules::{self, Module, Path};
use crate::test::sources::rust_files;

/// Steps from import to import before a path counts as one that leads nowhere.
const STEPS: usize = 16;

/// A module with the file that it is in, from the top of the repository.
pub(super) struct Place {
    pub(super) module: Module,
    pub(super) file: PathBuf,
}

/// The modules of one crate, by their paths.
pub(super) type Crate = BTreeMap<Path, Place>;

/// Crates by the names that `use` has for them: `dra_sched`.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) crates: BTreeMap<String, Crate>,
}

impl Sources {
    /// Reads the code of all crates in a folder; what only tests have is left out.
    pub(super) fn read(repository: &FilePath) -> Result<Self> {
        let crates = repository.join("crates");
        let mut sources = Self::default();
        for entry in fs::read_dir(&crates).with_context(|| format!("read {}", crates.display()))? {
            let entry = entry?;
            let folder = entry.path().join("src");
            let name = entry.file_name().to_string_lossy().replace('-', "_");
            for file in rust_files(&folder)? {
                let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
                let path = module_of(file.strip_prefix(&folder)?);
                let shown = file.strip_prefix(repository).unwrap_or(&file);
                sources.add(&name, &text, path, shown).with_context(|| format!("read {}", file.display()))?;
            }
        }
        sources.leave_out_tests();
        Ok(sources)
    }

    /// Adds the modules of one file.
    pub(super) fn add(&mut self, name: &str, text: &str, path: Path, file: &FilePath) -> Result<()> {
        let of_crate = self.crates.entry(name.to_owned()).or_default();
        for module in modules::read(text, path)? {
            of_crate.insert(module.path.clone(), Place { module, file: file.to_owned() });
        }
        Ok(())
    }

    /// Takes out the files of modules that are declared for tests only.
    pub(super) fn leave_out_tests(&mut self) {
        for of_crate in self.crates.values_mut() {
            let of_tests: BTreeSet<Path> = of_crate
                .values()
                .flat_map(|Place { module, .. }| {
                    module.test_children.iter().map(|child| [module.path.clone(), vec![child.clone()]].concat())
                })
                .collect();
            of_crate.retain(|path, _| !of_tests.iter().any(|module| path.starts_with(module)));
        }
    }

    /// The crate and the module in which what `path` names is declared, read in module `from` of crate `name`. None if
    /// that is no crate of ours, or a name that no `use` brought in.
    pub(super) fn resolve<'a>(
        &'a self,
        name: &str,
        from: &'a Module,
        path: &[String],
    ) -> Option<(&'a str, &'a Module)> {
        let (mut name, of_crate) = self.crates.get_key_value(name)?;
        let mut module = from;
        let mut rest: Path = path.to_vec();
        let mut of_crate = of_crate;
        let mut first = true;
        for _ in 0..STEPS * path.len() {
            let Some(head) = rest.first().cloned() else { break };
            let below = [module.path.clone(), vec![head.clone()]].concat();
            let next = match head.as_str() {
                "crate" => of_crate.get(&Vec::new()),
                "self" => Some(module).and_then(|module| of_crate.get(&module.path)),
                "super" => of_crate.get(&module.path[..module.path.len().saturating_sub(1)]),
                _ => of_crate.get(&below),
            };
            if let Some(place) = next {
                module = &place.module;
                rest.remove(0);
            } else if let Some(binding) = module.bindings.get(&head).filter(|binding| binding.first() != Some(&head)) {
                rest = [binding.as_slice(), &rest[1..]].concat();
                first = true;
                continue;
            } else if first {
                // Neither a module nor an import: a crate, or a name of this module's own or of a function.
                (name, of_crate) = self.crates.get_key_value(&head)?;
                module = &of_crate.get(&Vec::new())?.module;
                rest.remove(0);
            } else {
                break;
            }
            first = false;
        }
        Some((name, module))
    }
}

/// `a/b.rs` is module `a::b`, `lib.rs` and `main.rs` are the root.
fn module_of(file: &FilePath) -> Path {
    let path = file.with_extension("");
    let path: Path = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path == ["lib"] || path == ["main"] { Vec::new() } else { path }
}
