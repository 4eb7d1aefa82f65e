//! The documents and the names of the reactions.

use leftfold::Result;
use leftfold::react::ExternalCollection;
use serde::{Deserialize, Serialize};

/// The collection of the documents.
pub(super) const THINGS: &str = "things";
/// The names of all reactions.
pub(super) const REACTIONS: [&str; 5] = ["mail", "books", "turns", "ship", "tally"];
/// The document that no handler can handle.
pub(super) const POISON: &str = "poison";
/// The document that kills the process that handles it, as long as there are faults.
pub(super) const DEADLY: &str = "deadly";

pub(super) fn things() -> Result<ExternalCollection> {
    Ok(ExternalCollection::new(THINGS)?)
}

/// A document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(super) on: bool,
    pub(super) value: u64,
    pub(super) noise: u64,
}

/// The noise of a document that no store can read.
pub(super) const TORN: u64 = 7;

impl Thing {
    pub(crate) fn is_torn(&self) -> bool {
        self.noise == TORN
    }
}
