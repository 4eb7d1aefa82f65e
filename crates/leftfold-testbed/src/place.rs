//! Temporary directories for the servers' data.

use std::fs::{self, File};
use std::path::Path;
use std::{env, io};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "leftfold-testbed-";
const LOCK: &str = "in-use";

/// A temporary directory, removed on drop.
///
/// A killed process leaves its directory behind, and so does a server in a `static`. The next new
/// place removes such directories. A lock file in each directory, which the system releases with
/// the process, shows whether it is in use.
#[derive(Debug)]
pub(crate) struct Place {
    directory: TempDir,
    _lock: File,
}

impl Place {
    pub(crate) fn new() -> Result<Self, Error> {
        sweep(&env::temp_dir());
        Self::make().map_err(|error| Error::new("creating a temporary directory for a server", error))
    }

    fn make() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let unlocked = directory.path().join("not-in-use-yet");
        let lock = File::create(&unlocked)?;
        lock.lock()?;
        // The lock gets its name only now, so that other processes never find it unlocked too
        // early.
        fs::rename(unlocked, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory and reports errors.
    pub(crate) fn remove(self) -> Result<(), Error> {
        let doing = format!("removing {}", self.path().display());
        self.directory.close().map_err(|error| Error::new(doing, error))
    }
}

/// Removes the directories that other processes left behind. Ignores errors: another user may own
/// the directory, or another process may be removing it.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(directory: &Path) -> bool {
    File::open(directory.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_directories_stay_and_abandoned_ones_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let directory = parent.path().join(name);
            fs::create_dir(&directory).unwrap();
            (directory.clone(), File::create(directory.join(LOCK)).unwrap())
        };
        let (used, lock) = place("leftfold-testbed-used");
        lock.lock().unwrap();
        let (left, _) = place("leftfold-testbed-left");
        let (foreign, _) = place("other-left");
        let unfinished = parent.path().join("leftfold-testbed-unfinished");
        fs::create_dir(&unfinished).unwrap();

        sweep(parent.path());

        assert!(used.exists() && foreign.exists() && unfinished.exists());
        assert!(!left.exists());
    }
}
