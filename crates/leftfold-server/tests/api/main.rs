//! The API as a client sees it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod description;
mod documents;
mod following;
mod idempotency;
mod ingest;
mod operating;
mod rebuilds;
