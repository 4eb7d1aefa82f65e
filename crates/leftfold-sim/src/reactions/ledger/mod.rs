//! The invariants of reactions, checked at every change of a task and at every effect. The code
//! shares nothing with the engine.
//!
//! - I4: An effect recorded in the transaction that completes its task is recorded once for each
//!   cause, and never without a cause. No such task is done without its effect.
//! - I5: An effect outside the store names its cause by its key. The key is the same for all
//!   attempts, and differs for the next state. A handled state was true at the time. Nothing that
//!   is done is done again.
//! - I10: In the end the last state of every matching document is handled, and no task waits.
//! - I12: Only the worker that holds a claim ends it. A lost claim ends the run, and such losses
//!   are bounded. A healthy worker does not lose a claim.
//! - I14: A claim that is lost with its process counts as an attempt only if no other handler ran
//!   beside it. A worker that sent a heartbeat raises no suspicion.
//! - I13: No run begins that is paused, throttled, or needs newer code. The numbers of a lock
//!   increase and are unique.

mod claims;
mod documents;
mod effects;
mod handlers;
mod holdups;
mod locks;
mod nodes;
mod sometimes;
mod state;
mod tasks;

pub(crate) use effects::Effect;
pub(crate) use sometimes::{SOMETIMES, Sometimes};
pub(crate) use state::Ledger;
pub(crate) use tasks::Wrote;
