//! Connections: their number, their time limits and their shutdown.

mod serving;

pub(crate) use self::serving::{HEADER_BYTES, HEADERS};
pub use self::serving::{Listen, Serving, bind};
