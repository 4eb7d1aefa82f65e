//! Versions: the hash of a document's canonical text.
//!
//! | module | purpose |
//! | --- | --- |
//! | `hash` | a version, and how it is computed and written |
//! | `counted` | the part of a document that counts |
//! | `canonical` | the canonical text of any value |
//! | `plain` | the fast path: the canonical text, straight from JSON text |
//! | `sorted` | the fastest path: the hash, without writing the text |

mod canonical;
mod counted;
mod hash;
mod plain;
mod sorted;
#[cfg(test)]
mod tests;

pub(super) use canonical::{text, text_within};
pub use counted::Counted;
pub use hash::{Version, canonical};
