//! Things that happen in some runs.

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 20] = [
    "tasks taken over",
    "collections taken over",
    "locks taken over",
    "runs that were stale",
    "runs deferred",
    "reactions held up",
    "reactions paused",
    "claims given back",
    "runs cancelled",
    "tasks failed for good",
    "tasks that ended with their processes",
    "tasks run again by hand",
    "tasks forgotten",
    "changes of tasks refused",
    "changes of documents lost",
    "transactions that can't be told",
    "tasks left to newer code",
    "tasks suspected",
    "suspects run alone",
    "suspicions lifted",
];

#[derive(Clone, Copy)]
pub(crate) enum Sometimes {
    TakenOver,
    Collections,
    Locks,
    Stale,
    Deferred,
    HeldUp,
    Paused,
    GivenBack,
    Cancelled,
    Failed,
    Poisoned,
    ByHand,
    Forgotten,
    Refused,
    LostFeeds,
    Unknown,
    Newer,
    Suspected,
    Alone,
    Acquitted,
}
