//! The frames between the parent and a worker process, over a socket.
//!
//! A job is one frame, read whole before any part of it runs. The response is a sequence of records
//! that ends with [`Record::End`]. Numbers are little-endian, and texts are preceded by their
//! length.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::engine::Exports;
use crate::{ScriptFault, ScriptLimits};

/// The maximum size of a frame. Documents and events of the maximum sizes fit many times.
const MAX_FRAME_BYTES: usize = 256 << 20;

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

fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn length(from: &mut impl Read) -> io::Result<usize> {
    match u32::from_le_bytes(bytes(from)?) as usize {
        length @ 0..=MAX_FRAME_BYTES => Ok(length),
        _ => Err(invalid("a text is too large")),
    }
}

/// Reads a text. It may not be valid UTF-8, because the engine can produce unpaired surrogates.
fn text(from: &mut impl Read) -> io::Result<String> {
    let mut text = vec![0; length(from)?];
    from.read_exact(&mut text)?;
    String::from_utf8(text).map_err(|_| invalid("a text is not UTF-8"))
}

fn texts(from: &mut impl Read) -> io::Result<Vec<String>> {
    (0..length(from)?).map(|_| text(from)).collect()
}

fn put_length(into: &mut Vec<u8>, length: usize) {
    into.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    put_length(into, text.len());
    into.extend(text.as_bytes());
}

fn put_texts(into: &mut Vec<u8>, texts: &[String]) {
    put_length(into, texts.len());
    for text in texts {
        put_text(into, text);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The rest of a frame.
struct Slice<'a>(&'a [u8]);

impl<'a> Slice<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| invalid("a frame is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|at| taken[at]))
    }

    fn u8(&mut self) -> io::Result<u8> {
        self.number().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.number().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> io::Result<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| invalid("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_records_come_back_as_they_were() {
        let source =
            Source { file: "a.js".into(), text: "export …".into(), limits: ScriptLimits::default() };
        let item = |key, before| FoldItem { key, before, kind: "k", event: "{}" };
        for work in [
            Work::Load,
            Work::Fold(vec![item(0, Before::Nothing), item(0, Before::Last), item(1, Before::Text("{}"))]),
            Work::Route(vec!["{}", "[]"]),
        ] {
            for source in [None, Some(source.clone())] {
                let work = match &work {
                    Work::Load => Work::Load,
                    Work::Fold(items) => Work::Fold(items.clone()),
                    Work::Route(events) => Work::Route(events.clone()),
                };
                let job = Job { script: 7, source, most_time: Duration::from_millis(5), most_bytes: 9, work };
                let (mut sent, mut frame) = (Vec::new(), Vec::new());
                job.write(&mut sent).unwrap();
                assert!(read_frame(&mut &sent[..], &mut frame).unwrap());
                assert_eq!(parse(&frame).unwrap(), job);
                for cut in 0..frame.len() {
                    assert!(parse(&frame[..cut]).is_err(), "cut at {cut}");
                }
            }
        }
        let exports = Exports { types: vec!["a".into(), "b".into()], version: 3, routes: true };
        let fault = ScriptFault { message: "no".into(), is_limit: true };
        let records = [
            Record::Loaded(exports),
            Record::Fault(fault),
            Record::Nothing,
            Record::Document("{}".into()),
            Record::Ids(vec!["x".into()]),
            Record::Skipped,
            Record::End(Duration::from_millis(7)),
        ];
        let mut sent = Vec::new();
        for record in &records {
            record.put(&mut sent);
        }
        let mut rest = &sent[..];
        for record in records {
            assert_eq!(Record::read(&mut rest).unwrap(), record);
        }
        assert!(rest.is_empty());
    }
}
