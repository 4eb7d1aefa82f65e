//! Records: the parts of the response to a job.

use std::io::{self, Read};
use std::time::Duration;

use super::bytes::{bytes, invalid, nanos, put_text, put_texts, text, texts};
use crate::ScriptFault;
use crate::engine::Exports;

/// A part of the response to a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Loaded(Exports),
    Fault(ScriptFault),
    Nothing,
    Document(String),
    Ids(Vec<String>),
    /// The previous fold of the same document failed.
    Skipped,
    /// The end of the job, with the processor time of its items. Items without a record were not
    /// begun.
    End(Duration),
}

impl Record {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        match self {
            Self::Loaded(Exports { types, version, routes }) => {
                into.push(0);
                put_texts(into, types);
                into.extend(version.to_le_bytes());
                into.push(u8::from(*routes));
            }
            Self::Fault(ScriptFault { message, is_limit }) => {
                into.push(1);
                into.push(u8::from(*is_limit));
                put_text(into, message);
            }
            Self::Nothing => into.push(2),
            Self::Document(text) => {
                into.push(3);
                put_text(into, text);
            }
            Self::Ids(ids) => {
                into.push(4);
                put_texts(into, ids);
            }
            Self::Skipped => into.push(5),
            Self::End(cpu) => {
                into.push(6);
                into.extend(nanos(*cpu).to_le_bytes());
            }
        }
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        Ok(match u8::from_le_bytes(bytes(from)?) {
            0 => {
                let types = texts(from)?;
                let version = u32::from_le_bytes(bytes(from)?);
                Self::Loaded(Exports { types, version, routes: bytes(from)? != [0] })
            }
            1 => {
                let is_limit = bytes(from)? != [0];
                Self::Fault(ScriptFault { message: text(from)?, is_limit })
            }
            2 => Self::Nothing,
            3 => Self::Document(text(from)?),
            4 => Self::Ids(texts(from)?),
            5 => Self::Skipped,
            6 => Self::End(Duration::from_nanos(u64::from_le_bytes(bytes(from)?))),
            _ => return Err(invalid("a record has an unknown tag")),
        })
    }
}
