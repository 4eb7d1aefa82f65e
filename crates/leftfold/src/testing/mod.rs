//! The test kit: specifications of projections for users, and the conformance suite for authors of
//! stores.

mod bad_json;
mod chaos;
pub mod conformance;
mod naive;
mod spec;

pub use bad_json::{BadJson, bad_json};
pub use spec::{Spec, spec};
