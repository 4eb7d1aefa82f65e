//! The kit for tests.

pub mod conformance;
