//! The deletion of tasks.

use std::time::Duration;

/// When the task of a document is deleted.
///
/// Choose a delay longer than any process may stall or any write may be late. A plan made before
/// the deletion but written after it counts as a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Never.
    Keep,
    /// This long after the document was deleted.
    Gone(Duration),
    /// This long after the document was deleted or stopped matching.
    GoneOrOutside(Duration),
}

impl Default for Cleanup {
    /// Deletes the task a day after the document was deleted.
    fn default() -> Self {
        Self::Gone(Duration::from_hours(24))
    }
}
