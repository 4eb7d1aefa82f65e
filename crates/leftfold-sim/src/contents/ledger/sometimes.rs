//! Things that happen in some runs.

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 10] = [
    "writes of content that conflict",
    "contents that were there already",
    "contents deleted",
    "changes made anew",
    "changes made twice, as nobody could tell",
    "operations that were applied already",
    "operations that are too old",
    "operations on nothing",
    "operations that are impossible",
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
