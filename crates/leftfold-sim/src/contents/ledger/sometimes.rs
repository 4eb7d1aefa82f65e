//! Things that happen in some runs.

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 10] = [
    "writes of content that conflict",
    "contents already written",
    "contents deleted",
    "changes retried",
    "changes written twice after an unknown outcome",
    "operations already applied",
    "operations that are too old",
    "operations on missing documents",
    "impossible operations",
    "writers that died",
];

#[derive(Clone, Copy)]
pub(crate) enum Sometimes {
    Conflict,
    Already,
    Deleted,
    Anew,
    Twice,
    Repeated,
    TooOld,
    Missing,
    Impossible,
    Died,
}
