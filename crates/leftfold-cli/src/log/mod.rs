//! Logging: lines on standard error, and spans to a collector if the file names one.

mod lines;
#[cfg(feature = "opentelemetry")]
mod spans;

pub(crate) use self::lines::{filter, quiet, start};
