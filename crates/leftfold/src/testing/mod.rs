//! The kit for tests.

mod naive;
mod spec;

pub use spec::{Spec, spec};
