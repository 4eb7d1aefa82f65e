//! The frames between the parent and a worker process, over a socket.
//!
//! A job is one frame, read whole before any part of it runs. The response is a sequence of records
//! that ends with [`Record::End`]. Numbers are little-endian, and texts are preceded by their
//! length.

mod bytes;
mod job;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use self::job::{Before, FoldItem, Job, Source, Work, parse, read_frame};
pub(crate) use self::record::Record;
