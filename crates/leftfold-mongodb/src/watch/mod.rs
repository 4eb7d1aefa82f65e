//! Waiting for commits, also those of other processes.

mod board;

pub(crate) use self::board::{Board, Known, Scope};
