//! The decision about a write from the store's result.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::write::Made;
use super::{Current, Versioned, WriteAnswer};
use crate::content::Version;
use crate::content::store::{ContentGuard, ContentWrite, Contents, Stored, Wrote};
use crate::error::Result;
use crate::mutant;

/// The decision about a write.
pub(super) enum Judged<D> {
    /// The answer to the caller.
    Answer(WriteAnswer<D>),
    /// The document has the content that the write is based on, and this guard.
    Expects(ContentGuard),
}

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Decides about one write from the store's answer.
    pub(super) fn judge(&self, write: &ContentWrite, made: Made, outcome: Wrote) -> Result<Judged<D>> {
        let is_deletion = write.to.is_none();
        let already_applied = || Ok(Judged::Answer(WriteAnswer::AlreadyApplied(made.to)));
        let stored = match outcome {
            Wrote::Written => return Ok(Judged::Answer(WriteAnswer::Applied(made.to))),
            Wrote::Refused(None) if is_deletion => return already_applied(),
            Wrote::Refused(None) => return Ok(Judged::Answer(WriteAnswer::Conflict(None))),
            Wrote::Refused(Some(stored)) => stored,
        };
        let version = Version::of(&stored.body, &self.counted)?;
        mutant!(OtherIsSame => if !is_deletion { return already_applied() });
        if !is_deletion && version == made.to {
            mutant!(SameIsConflict => return Self::conflict(version, &stored));
            return already_applied();
        }
        mutant!(WriteOverOthers => return Ok(Judged::Expects(stored.guard)));
        // The content is the one that the write is based on, but the guard differs. Either
        // operations led there, or another writer counts other parts.
        if Some(version) == made.from && write.expected.as_ref() != Some(&stored.guard) {
            return Ok(Judged::Expects(stored.guard));
        }
        Self::conflict(version, &stored)
    }

    fn conflict(version: Version, stored: &Stored) -> Result<Judged<D>> {
        Ok(Judged::Answer(WriteAnswer::Conflict(Some(Current { version, document: stored.body.to()? }))))
    }
}
