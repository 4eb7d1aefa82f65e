//! A version: the hash of a document's canonical text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::counted::Counted;
use super::{plain, sorted};
use crate::error::Invalid;
use crate::json::Json;
use crate::react::Value;

/// The version of a document's content.
///
/// ```
/// use leftfold::content::{Counted, Version};
/// use leftfold::Json;
///
/// let one = Json::parse(r#"{"name": "shoes", "price": 4900, "seen": 17}"#)?;
/// let other = Json::parse(r#"{"price": 4900.0, "name": "shoes", "seen": 18}"#)?;
/// assert_ne!(Version::of(&one, &Counted::All)?, Version::of(&other, &Counted::All)?);
/// let without = Counted::except(["seen"])?;
/// assert_eq!(Version::of(&one, &without)?, Version::of(&other, &without)?);
/// # Ok::<(), leftfold::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version([u8; 32]);

impl Version {
    /// Computes the version of a document from its counted part.
    pub fn of(document: &Json, counted: &Counted) -> Result<Self, Invalid> {
        if *counted == Counted::All
            && let Some(hash) = sorted::digest(document.as_str())
        {
            return Ok(Self(hash));
        }
        Ok(Self(Sha256::digest(canonical(document, counted)?).into()))
    }

    pub(in crate::content) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Returns the text from which a version is computed.
pub fn canonical(document: &Json, counted: &Counted) -> Result<String, Invalid> {
    if *counted == Counted::All
        && let Some(text) = plain::text(document.as_str())
    {
        return Ok(text);
    }
    let value: Value = document.as_str().parse()?;
    super::canonical::text(&counted.part_of(value))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = |byte: u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&digits(byte));
        }
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid =
            || Invalid::new("version", text, "64 hexadecimal digits, as a document's version is written");
        let is_hex = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut version = [0; 32];
        for (byte, at) in version.iter_mut().zip((0..).step_by(2)) {
            let digits = text.get(at..at + 2).filter(|_| is_hex).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        }
        Ok(Self(version))
    }
}

impl TryFrom<String> for Version {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}
