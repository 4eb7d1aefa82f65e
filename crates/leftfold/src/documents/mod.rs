//! Documents: the storage of read models. Each document carries the mark of the events it has
//! folded.
//!
//! The trait requires only conditional writes of single documents. Stores with transactions commit
//! a batch as one. Other stores write documents first and the checkpoint last, and the guards keep
//! that correct.
//!
//! | module | purpose |
//! | --- | --- |
//! | `record` | a document as it is stored |
//! | `commit` | guarded writes, and the outcome of a commit |
//! | `lease` | the lease on a projection |
//! | `store` | the store interface |
//! | `collection`, `generations` | names, and the generations of a rebuilt collection |
//! | `frozen` | a checkpoint that a switch has stopped |
//! | `read` | reads that wait for one's own writes |
//! | [`guarded`] | folds by hand, for those with their own consumer |

mod collection;
mod commit;
mod frozen;
mod generations;
pub mod guarded;
mod lease;
mod read;
mod record;
mod store;

pub use collection::Collection;
pub use commit::{
    Advance, Checkpoint, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentWrite, Tally,
};
pub(crate) use frozen::{folded, freeze, frozen};
pub use generations::{Generation, Generations, Switching};
pub use lease::Claim;
pub use read::{Get, ReadError};
pub use record::{DocumentCounts, Header, Parked, Record};
pub use store::Documents;

/// The longest body of a document, in bytes. A fold that produces a longer one fails.
pub const MAX_BODY_BYTES: usize = 16_000_000;

/// The deepest nesting of a document. Readers wrap documents in lists and messages, and every
/// reader can parse this depth.
pub const MAX_BODY_DEPTH: usize = 100;
