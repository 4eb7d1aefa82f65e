//! CloudEvents over HTTP: a route that accepts them, and a resupplier that requests missing ones.

mod answers;
mod body;
mod ingest;
mod problem;
mod resupply;

pub use self::ingest::{Checked, Ingest, router};
pub use self::resupply::HttpResupplier;
