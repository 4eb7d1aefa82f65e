//! The kit for tests: specifications of projections for users, the conformance suite for authors of stores.

pub mod conformance;
mod naive;
mod spec;

pub use spec::{Spec, spec};
