//! The connections to the file: one writes, a few read.

mod identity;
mod job;
mod open;
mod readers;
mod thread;
mod work;
mod writer;

pub(crate) use self::identity::Identity;
pub(crate) use self::open::{open, open_to_read};
pub(crate) use self::readers::{Readers, StayOpen};
pub(crate) use self::work::{Ran, Tx, Work};
pub(crate) use self::writer::Writer;

#[cfg(test)]
mod tests;
