//! The book: effects outside the store, each a line appended to a file in one write. Each process
//! has its own file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use leftfold::react::Context;
use leftfold::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;

/// The prefix of the files' names.
const BEGIN: &str = "effects-";

/// An effect of a handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) reaction: String,
    /// The id of the document, or of the stream.
    pub(crate) document: String,
    /// The idempotency key.
    pub(crate) key: String,
    /// The watched part of the document at the time of the effect; for events their revision.
    pub(crate) state: Value,
    /// The number of earlier effects of the reaction for the same document, if they are counted.
    pub(crate) before: Option<u64>,
    pub(crate) attempt: u32,
}

impl Effect {
    /// Creates the effect of a run.
    pub(crate) fn of<D>(ctx: &Context<D>, state: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self {
            reaction: ctx.task().key.reaction.clone(),
            document: ctx.id().to_string(),
            key: ctx.idempotency_key(),
            state: serde_json::to_value(state)?,
            before: None,
            attempt: ctx.attempt(),
        })
    }
}

/// The file in which a process records its effects.
#[derive(Debug)]
pub(crate) struct EffectFile(Mutex<File>);

impl EffectFile {
    /// Creates a new file for a process.
    pub(crate) fn open(directory: &Path, name: &str) -> Result<Self> {
        let path = directory.join(format!("{BEGIN}{name}-{}.jsonl", std::process::id()));
        let failed =
            |error| Error::new(Kind::Store, format!("opening {}", path.display())).with_source(error);
        Ok(Self(Mutex::new(OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?)))
    }

    /// Records an effect.
    pub(crate) fn enter(&self, effect: &Effect) -> io::Result<()> {
        let mut line = serde_json::to_vec(effect)?;
        line.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

/// Reads the effects of all processes.
pub(super) fn read_all(directory: &Path) -> Result<Vec<Effect>, Failure> {
    let failed = |error| Failure::rig("reading effects", error);
    let mut effects = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with(BEGIN) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).map_err(failed)?;
        // A killed process may leave a partial last line, which counts as no effect.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            effects
                .push(serde_json::from_str(line).map_err(|error| Failure::rig("reading an effect", error))?);
        }
    }
    Ok(effects)
}
