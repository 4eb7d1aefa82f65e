//! Waiting for commits, also those of other processes.

mod board;
mod known;
mod watcher;

pub(crate) use self::board::Board;
pub(crate) use self::known::News;
