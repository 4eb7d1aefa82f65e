//! The kit for tests: specifications of projections for users, the conformance suite for authors of stores.

mod bad_json;
mod chaos;
pub mod conformance;
mod naive;
mod spec;

pub use bad_json::{BadJson, bad_json};
pub use spec::{Spec, spec};
