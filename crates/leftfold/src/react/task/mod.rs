//! A task: the outstanding work of a reaction for a document, as a state machine over plain values.
//!
//! Two parties change a task independently. Planners [observe](Task::observe) the document; runners
//! [claim](Task::claim) the task and [finish](Task::finish) it. Each computes the new task from the
//! old one, and a store writes it only if the stored task still is the old one. If a runner finds
//! that the document changed, it leaves the task in a state from which the next observation
//! decides. So the last state of the document is handled in every interleaving.
//!
//! | module | purpose |
//! | --- | --- |
//! | `record` | the task as stores keep it |
//! | `rules` | the inputs of decisions |
//! | `observe` | the document or the stream changed |
//! | `schedule` | the next run of a recurring reaction |
//! | `claim` | a worker takes the task, keeps it, gives it back |
//! | `finish` | a run has ended |
//! | `loss` | a claim is lost |
//! | `suspicion` | levels of suspicion after lost claims |
//! | `rerun` | the task runs again on request, or for new code |
//! | `history` | the last runs |
//! | `size` | bounds on watched values and errors |

mod claim;
mod finish;
mod history;
mod loss;
mod observe;
mod record;
mod rerun;
mod rules;
mod schedule;
mod size;
mod suspicion;
#[cfg(test)]
mod tests;

pub use finish::RunOutcome;
pub(crate) use history::MAX_HISTORY;
pub use history::{Ended, Run};
pub use loss::Loser;
pub use observe::Observation;
pub use record::{State, StreamProgress, Task, TaskKey};
pub use rerun::Evolution;
pub use rules::{Rules, TaskMoment};
pub(crate) use size::{is_hash, kept};
pub use suspicion::Suspicion;
