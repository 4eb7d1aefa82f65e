//! Jobs: the work for a worker, as frames.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::bytes::{MAX_FRAME_BYTES, Slice, invalid, nanos, put_length, put_text};
use crate::ScriptLimits;

/// A script with everything a worker needs to load it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) limits: ScriptLimits,
}

/// The work of one job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// Load the script and return its exports.
    Load,
    /// Fold these items, in order.
    Fold(Vec<FoldItem<'a>>),
    /// Route the events with these texts.
    Route(Vec<&'a str>),
}

/// One fold of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoldItem<'a> {
    /// The document's number within the job.
    pub(crate) key: u32,
    pub(crate) before: Before<'a>,
    pub(crate) kind: &'a str,
    pub(crate) event: &'a str,
}

/// The document that an event is folded into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before<'a> {
    /// The result of the last item with the same key.
    Last,
    Nothing,
    Text(&'a str),
}

/// A job for a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job<'a> {
    /// The identity of the script.
    pub(crate) script: u64,
    /// The script itself, if the worker does not have it yet.
    pub(crate) source: Option<Source>,
    /// The time after which the job ends early, after some item …
    pub(crate) most_time: Duration,
    /// … or the size of its results.
    pub(crate) most_bytes: u32,
    pub(crate) work: Work<'a>,
}

impl Job<'_> {
    /// Writes the job as one frame.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut frame = vec![0; 4];
        frame.extend(self.script.to_le_bytes());
        frame.push(u8::from(self.source.is_some()));
        if let Some(Source { file, text, limits }) = &self.source {
            put_text(&mut frame, file);
            put_text(&mut frame, text);
            frame.extend(nanos(limits.time).to_le_bytes());
            frame.extend((limits.memory as u64).to_le_bytes());
        }
        frame.extend(nanos(self.most_time).to_le_bytes());
        frame.extend(self.most_bytes.to_le_bytes());
        match &self.work {
            Work::Load => frame.push(0),
            Work::Fold(items) => {
                frame.push(1);
                put_length(&mut frame, items.len());
                for FoldItem { key, before, kind, event } in items {
                    frame.extend(key.to_le_bytes());
                    match before {
                        Before::Last => frame.push(0),
                        Before::Nothing => frame.push(1),
                        Before::Text(text) => {
                            frame.push(2);
                            put_text(&mut frame, text);
                        }
                    }
                    put_text(&mut frame, kind);
                    put_text(&mut frame, event);
                }
            }
            Work::Route(events) => {
                frame.push(2);
                put_length(&mut frame, events.len());
                for event in events {
                    put_text(&mut frame, event);
                }
            }
        }
        let length = frame.len() - 4;
        if length > MAX_FRAME_BYTES {
            return Err(invalid("a frame is too large"));
        }
        frame[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        to.write_all(&frame)
    }
}

/// Reads the next frame into a buffer. Returns `false` if the parent is gone.
pub(crate) fn read_frame(from: &mut impl Read, frame: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(invalid("a frame is too large"));
    }
    frame.clear();
    frame.resize(length, 0);
    from.read_exact(frame)?;
    Ok(true)
}

/// Parses a job from its frame.
pub(crate) fn parse(frame: &[u8]) -> io::Result<Job<'_>> {
    let mut rest = Slice(frame);
    let script = rest.u64()?;
    let source = if rest.u8()? == 0 {
        None
    } else {
        let (file, text) = (rest.text()?.to_owned(), rest.text()?.to_owned());
        let time = Duration::from_nanos(rest.u64()?);
        let memory = usize::try_from(rest.u64()?).unwrap_or(usize::MAX);
        Some(Source { file, text, limits: ScriptLimits { time, memory } })
    };
    let (most_time, most_bytes) = (Duration::from_nanos(rest.u64()?), rest.u32()?);
    let work = match rest.u8()? {
        0 => Work::Load,
        1 => {
            let count = rest.u32()?;
            let mut items = Vec::new();
            for _ in 0..count {
                let key = rest.u32()?;
                let before = match rest.u8()? {
                    0 => Before::Last,
                    1 => Before::Nothing,
                    _ => Before::Text(rest.text()?),
                };
                items.push(FoldItem { key, before, kind: rest.text()?, event: rest.text()? });
            }
            Work::Fold(items)
        }
        _ => {
            let count = rest.u32()?;
            Work::Route((0..count).map(|_| rest.text()).collect::<io::Result<_>>()?)
        }
    };
    Ok(Job { script, source, most_time, most_bytes, work })
}
