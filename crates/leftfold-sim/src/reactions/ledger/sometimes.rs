//! Things that happen in some runs.

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 20] = [
    "tasks taken over",
    "collections taken over",
    "locks taken over",
    "stale runs",
    "runs deferred",
    "reactions throttled",
    "reactions paused",
    "claims returned",
    "runs canceled",
    "tasks given up",
    "tasks given up because their processes died",
    "tasks retried by an operator",
    "tasks deleted",
    "changes of tasks rejected",
    "changes of documents lost",
    "transactions with an unknown outcome",
    "tasks left to newer code",
    "tasks suspected",
    "suspects that ran alone",
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
