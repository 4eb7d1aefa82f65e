//! The frames between the parent and a worker process, over a socket.

mod codec;

pub(crate) use self::codec::{Before, FoldItem, Job, Record, Source, Work, parse, read_frame};
