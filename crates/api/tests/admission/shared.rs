//! Where test data lies that is not in the repository.

use std::path::PathBuf;

/// A file of the shared test data, or `None` and a printed line where it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DOVETAIL_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let file = root.join(path);
    if file.exists() {
        return Some(file);
    }
    println!("skipped: {} is not there", file.display());
    None
}
