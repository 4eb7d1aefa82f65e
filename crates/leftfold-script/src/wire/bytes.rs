//! Numbers and texts in frames and records.

use std::io::{self, Read};
use std::time::Duration;

/// The maximum size of a frame. Documents and events of the maximum sizes fit many times.
pub(super) const MAX_FRAME_BYTES: usize = 256 << 20;

pub(super) fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn length(from: &mut impl Read) -> io::Result<usize> {
    match u32::from_le_bytes(bytes(from)?) as usize {
        length @ 0..=MAX_FRAME_BYTES => Ok(length),
        _ => Err(invalid("a text is too large")),
    }
}

/// Reads a text. It may not be valid UTF-8, because the engine can produce unpaired surrogates.
pub(super) fn text(from: &mut impl Read) -> io::Result<String> {
    let mut text = vec![0; length(from)?];
    from.read_exact(&mut text)?;
    String::from_utf8(text).map_err(|_| invalid("a text is not UTF-8"))
}

pub(super) fn texts(from: &mut impl Read) -> io::Result<Vec<String>> {
    (0..length(from)?).map(|_| text(from)).collect()
}

pub(super) fn put_length(into: &mut Vec<u8>, length: usize) {
    into.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

pub(super) fn put_text(into: &mut Vec<u8>, text: &str) {
    put_length(into, text.len());
    into.extend(text.as_bytes());
}

pub(super) fn put_texts(into: &mut Vec<u8>, texts: &[String]) {
    put_length(into, texts.len());
    for text in texts {
        put_text(into, text);
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The rest of a frame.
pub(super) struct Slice<'a>(pub(super) &'a [u8]);

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

    pub(super) fn u8(&mut self) -> io::Result<u8> {
        self.number().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        self.number().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> io::Result<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| invalid("a text is not UTF-8"))
    }
}
