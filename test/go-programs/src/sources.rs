//! The hash that names a cached program: everything that its build reads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Hashes the names and contents of a module's files, but tests and prose, together with `context`.
pub(crate) fn hash(module: &Path, context: &[&str]) -> io::Result<String> {
    let mut files = Vec::new();
    collect(module, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    for part in context {
        update(&mut hash, part.as_bytes());
    }
    for file in files {
        let name = file.strip_prefix(module).unwrap_or(&file);
        update(&mut hash, name.as_os_str().as_encoded_bytes());
        update(&mut hash, &fs::read(&file)?);
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Adds the length before the bytes, so that no two sequences of parts look the same.
fn update(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name == "testdata" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if !name.ends_with("_test.go") && !name.ends_with(".md") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_sources_and_context_but_not_tests() -> io::Result<()> {
        let module = std::env::temp_dir().join(format!("go-sources-{}", std::process::id()));
        fs::create_dir_all(module.join("internal"))?;
        fs::write(module.join("main.go"), "package main")?;
        let first = hash(&module, &["go1"])?;

        fs::write(module.join("main_test.go"), "package main")?;
        fs::write(module.join("README.md"), "words")?;
        assert_eq!(hash(&module, &["go1"])?, first);
        assert_ne!(hash(&module, &["go2"])?, first);

        fs::write(module.join("internal/a.go"), "package internal")?;
        assert_ne!(hash(&module, &["go1"])?, first);
        fs::remove_dir_all(module)
    }
}
