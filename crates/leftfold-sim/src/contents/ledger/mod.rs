//! The invariants of documents without events, checked at every change and every response. The code
//! shares nothing with the code under test.
//!
//! - I10: Without faults nothing fails.
//! - I11: The responses that writers got are true. A written or applied change is there. A change
//!   reported as already present was present. A rejected change had a reason and is not there.
//! - I14: Content replaces only the content it was computed from. A call writes again only after an
//!   unknown outcome, and only if others wrote in between.
//! - I15: An operation is applied to a document once and has its defined effect. It fails if the
//!   document no longer remembers operations as old as this.

mod answers;
mod calls;
mod final_state;
mod history;
mod sometimes;
mod state;

pub(crate) use calls::{CallId, Wanted};
pub(crate) use sometimes::{SOMETIMES, Sometimes};
pub(crate) use state::Ledger;
