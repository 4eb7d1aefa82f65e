//! Measures reactions to documents that any program writes. A handler reads each document once.

mod documents;
mod mongodb;
mod peer;
pub(crate) mod processes;
pub(crate) mod profile;
mod run;
mod sqlite;

pub(crate) use mongodb::on_mongodb;
pub(crate) use sqlite::on_sqlite;

use documents::{ExternalDocuments, Order};
use run::{DOCUMENTS, Handled, LATENCIES, PER_SECOND, Run};
