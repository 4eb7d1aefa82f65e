//! The fastest path to a version, without writing the canonical text. It handles JSON that is
//! canonical except for the order of its top-level fields, as most documents are that programs have
//! just written.
//!
//! It leaves all other documents to [the path that writes it](super::plain).

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

/// The maximum depth of this path.
const DEPTH: usize = 32;
/// The number of digits that always fit in 64 bits.
const DIGITS: usize = 18;

/// Returns the hash of the canonical text, or `None` if that text must be written.
pub(super) fn digest(json: &str) -> Option<[u8; 32]> {
    let text = json.as_bytes();
    let mut fields: SmallVec<[(&[u8], &[u8]); 16]> = SmallVec::new();
    let end = object(text, 0, DEPTH, |name, field| {
        fields.push((name, field));
        Some(())
    })?;
    if end != text.len() {
        return None;
    }
    fields.sort_unstable_by_key(|(name, _)| *name);
    if fields.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let mut hash = Sha256::new();
    let mut before: &[u8] = b"{";
    for (_, field) in &fields {
        hash.update(before);
        hash.update(field);
        before = b",";
    }
    hash.update(if fields.is_empty() { b"{}".as_slice() } else { b"}" });
    Some(hash.finalize().into())
}

/// Passes over an object, and calls `tell` with the name and the whole text of each field. Returns
/// its end.
fn object<'j>(
    text: &'j [u8],
    mut at: usize,
    depth: usize,
    mut tell: impl FnMut(&'j [u8], &'j [u8]) -> Option<()>,
) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    at = byte(text, at, b'{')?;
    if text.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        let begin = at;
        at = string(text, at)?;
        let name = &text[begin + 1..at - 1];
        if name.starts_with(b"$") || !name.is_ascii() {
            return None;
        }
        at = value(text, byte(text, at, b':')?, depth)?;
        tell(name, &text[begin..at])?;
        match text.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Passes over a canonical value. Returns its end.
fn value(text: &[u8], mut at: usize, depth: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string(text, at),
        b'{' => {
            let mut last: Option<&[u8]> = None;
            object(text, at, depth, |name, _| (last.replace(name) < Some(name)).then_some(()))
        }
        b'[' => {
            let depth = depth.checked_sub(1)?;
            at += 1;
            if text.get(at) == Some(&b']') {
                return Some(at + 1);
            }
            loop {
                at = value(text, at, depth)?;
                match text.get(at)? {
                    b',' => at += 1,
                    b']' => return Some(at + 1),
                    _ => return None,
                }
            }
        }
        b't' => word(text, at, b"true"),
        b'f' => word(text, at, b"false"),
        b'n' => word(text, at, b"null"),
        _ => number(text, at),
    }
}

fn byte(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (*text.get(at)? == byte).then_some(at + 1)
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

/// Passes over a string without escapes.
fn string(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(byte(text, at, b'"')?..)?;
    let length = memchr::memchr2(b'"', b'\\', rest)?;
    let is_plain = rest[length] == b'"' && !rest[..length].iter().any(|byte| *byte < b' ');
    is_plain.then_some(at + length + 2)
}

/// Passes over a short integer. Only floating-point numbers have a negative zero.
fn number(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at..];
    let sign = usize::from(rest.first() == Some(&b'-'));
    let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_zero = rest.get(sign) == Some(&b'0');
    let is_short = (1..=DIGITS).contains(&digits) && !(is_zero && (digits > 1 || sign > 0));
    let goes_on = rest.get(sign + digits).is_some_and(|byte| matches!(byte, b'.' | b'e' | b'E'));
    (is_short && !goes_on).then_some(at + sign + digits)
}
