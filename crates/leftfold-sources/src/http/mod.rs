//! CloudEvents over HTTP: a route that takes them, and a resupplier that asks for those that are missing.

mod answers;
mod ingest;
mod problem;
mod resupply;

pub use self::ingest::{Checked, Ingest, router};
pub use self::resupply::HttpResupplier;
