//! Where built programs are kept, the locks beside them, and the removal of old ones.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const UNUSED_AFTER: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The cache folder: `$XDG_CACHE_HOME/dovetail`, else `~/.cache/dovetail`.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("dovetail"))
}

/// Holds the build of one program until it is dropped; `waiting` is called once if another process builds it now.
pub(crate) fn lock(path: &Path, waiting: impl FnOnce()) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            waiting();
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(file)
}

/// Marks a program as used now, which is what keeps it from [`remove_unused`].
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    // Opened for reading: while a program is open for writing nobody can run it, and a process that is being spawned
    // elsewhere holds on to the file for a moment.
    File::open(path)?.set_modified(SystemTime::now())
}

/// Removes the programs called `name` that were last used two weeks before `now`; what cannot be removed stays.
pub(crate) fn remove_unused(folder: &Path, name: &str, now: SystemTime) -> io::Result<()> {
    let prefix = format!("{name}-");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let of_this_name = entry.file_name().to_str().is_some_and(|file| file.starts_with(&prefix));
        let unused = now.duration_since(entry.metadata()?.modified()?).is_ok_and(|age| age > UNUSED_AFTER);
        if of_this_name && unused {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_that_name_unused_for_two_weeks_are_removed() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("go-programs-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        for name in ["render-old", "render-new", "other-old"] {
            fs::write(folder.join(name), "")?;
        }
        let now = SystemTime::now();
        let long_ago = now - UNUSED_AFTER - Duration::from_secs(1);
        for name in ["render-old", "other-old"] {
            File::options().append(true).open(folder.join(name))?.set_modified(long_ago)?;
        }
        touch(&folder.join("render-new"))?;

        remove_unused(&folder, "render", now)?;

        let left = |name: &str| folder.join(name).exists();
        assert_eq!((left("render-old"), left("render-new"), left("other-old")), (false, true, true));
        fs::remove_dir_all(folder)
    }
}
