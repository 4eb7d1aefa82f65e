//! The kit for tests.
