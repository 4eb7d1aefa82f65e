//! The kit for tests.

pub mod conformance;
mod naive;
mod spec;

pub use spec::{Spec, spec};
