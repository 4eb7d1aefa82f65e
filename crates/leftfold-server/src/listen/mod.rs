//! Connections: their number, their time limits and their shutdown.

mod accept;
mod connection;
mod options;
mod serving;

pub use self::accept::bind;
pub(crate) use self::connection::{HEADER_BYTES, HEADERS};
pub use self::options::Listen;
pub use self::serving::Serving;
