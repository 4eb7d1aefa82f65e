//! A task: the outstanding work of a reaction for a document, as a state machine over plain values.
//!
//! Two parties change a task independently. Planners [observe](Task::observe) the document; runners
//! [claim](Task::claim) the task and [finish](Task::finish) it. Each computes the new task from the
//! old one, and a store writes it only if nobody else changed it meanwhile. If a runner finds that
//! the document changed, it leaves the task in a state from which the next look decides. So the
//! last state of the document is handled in every interleaving.

mod claim;
mod state;
#[cfg(test)]
mod tests;

pub use claim::{Loser, Suspicion};
pub use state::{
    Ended, Evolution, Observation, Rules, Run, RunOutcome, State, StreamProgress, Task, TaskKey, TaskMoment,
};
pub(crate) use state::{MAX_HISTORY, is_hash, kept};
