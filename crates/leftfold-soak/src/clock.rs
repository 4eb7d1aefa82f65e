//! The daemon's wall clock, moved forward and back at run time with libfaketime, a Debian package.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dice::Dice;

const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// The offsets of the clock.
const STEPS: [&str; 3] = ["-6h", "+0", "+6h"];

/// An adjustable clock.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Creates a clock with its file in a directory. Installs the library if it is missing.
    pub(crate) fn new(directory: &Path) -> Result<Self, String> {
        leftfold_testbed::program("faketime", "faketime", "LEFTFOLD_FAKETIME")
            .map_err(|error| error.to_string())?;
        let library = library().ok_or_else(|| format!("no {LIBRARY} was found below /usr/lib"))?;
        let file = directory.join("clock");
        fs::write(&file, "+0").map_err(|error| format!("writing {}: {error}", file.display()))?;
        Ok(Self { library, file })
    }

    /// Makes a program started by the command see this clock. It changes only the wall clock, not
    /// timers.
    pub(crate) fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets a random offset and returns it.
    pub(crate) fn step(&self, dice: &mut Dice) -> io::Result<&'static str> {
        let step = *dice.pick(&STEPS);
        // Renaming keeps the daemon from reading a partial file.
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
