//! The daemon's wall clock, set forth and back while it runs: by libfaketime, a Debian package.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dice::Dice;

const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// How far the clock can be off.
const STEPS: [&str; 3] = ["-6h", "+0", "+6h"];

/// A clock that can be set.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Makes a clock whose file is in a directory; installs the library if it is missing.
    pub(crate) fn new(directory: &Path) -> Result<Self, String> {
        leftfold_testbed::program("faketime", "faketime", "LEFTFOLD_FAKETIME")
            .map_err(|error| error.to_string())?;
        let library = library().ok_or_else(|| format!("no {LIBRARY} was found below /usr/lib"))?;
        let file = directory.join("clock");
        fs::write(&file, "+0").map_err(|error| format!("writing {}: {error}", file.display()))?;
        Ok(Self { library, file })
    }

    /// Has a program started by the command see this clock. Only its wall clock: timers go on as they are.
    pub(crate) fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets it to another hour, and says to which.
    pub(crate) fn step(&self, dice: &mut Dice) -> io::Result<&'static str> {
        let step = *dice.pick(&STEPS);
        // The daemon must never see half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, step)?;
        fs::rename(new, &self.file)?;
        Ok(step)
    }
}

fn library() -> Option<PathBuf> {
    let places = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let places = places.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    places.map(|place| place.join(LIBRARY)).find(|library| library.is_file())
}
