//! The parts that the command-line programs share: locations of stores, output for people or for
//! machines, and exit statuses.

mod exit;
mod location;
mod output;
mod usage;

pub use exit::{Exit, Failure};
#[cfg(feature = "mongodb")]
pub use location::MongoDbUrl;
pub use location::{AnyLocation, Location, SqliteFile, StoreCommand, without_secrets};
pub use output::{Out, brief, brief_difference, count, finish, shorten, table, thousands, time};
pub use usage::usage_error;
