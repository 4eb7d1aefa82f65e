//! The names of the collections. The [indexes](super::indexes) have their own module.

use leftfold::Collection;

pub(crate) const EVENTS: &str = "leftfold.events";
pub(crate) const HEADS: &str = "leftfold.heads";
pub(crate) const CHECKPOINTS: &str = "leftfold.checkpoints";
pub(crate) const LEASES: &str = "leftfold.leases";
pub(crate) const GENERATIONS: &str = "leftfold.generations";
pub(crate) const META: &str = "leftfold.meta";
pub(crate) const HELD: &str = "leftfold.held";
pub(crate) const SEQUENCES: &str = "leftfold.sequences";
pub(crate) const CONFLICTS: &str = "leftfold.conflicts";
pub(crate) const SKIPPED: &str = "leftfold.skipped";
pub(crate) const REJECTED: &str = "leftfold.rejected";
pub(crate) const COUNTERS: &str = "leftfold.counters";
pub(crate) const TASKS: &str = "leftfold.tasks";
pub(crate) const REACTIONS: &str = "leftfold.reactions";
pub(crate) const FEEDS: &str = "leftfold.feeds";
/// The heartbeats of workers.
pub(crate) const WORKERS: &str = "leftfold.workers";
/// The counter of wake-ups for runners.
pub(crate) const WAKES: &str = "leftfold.wakes";

/// The document that every writer of rejected messages updates, so that they count them one after
/// the other.
pub(crate) const REJECTING: &str = "rejected";

/// Returns the collection that holds the records of a generation. The first generation uses the
/// name without a number.
pub(crate) fn records(generation: &Collection) -> String {
    let stored = generation.stored(0);
    match stored.belongs_to() {
        Some(visible) => format!("leftfold.streams.{visible}"),
        None => format!("leftfold.docs.{stored}"),
    }
}
