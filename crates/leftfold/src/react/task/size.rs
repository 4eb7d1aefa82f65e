//! Bounds on the size of a task, so that every store can hold it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::json::Json;
use crate::mutant;

/// The size above which watched values are kept as their hash.
const MAX_WATCHED_BYTES: usize = 16 << 10;

/// The prefix of watched values that are kept as their hash.
const HASH_BEGIN: &str = "{\"$leftfold\":\"sha256:";

/// The number of bytes kept of the beginning, and of the end, of a long error text.
const CUT_BYTES: usize = 4 << 10;

/// Returns the watched values as a task keeps them. Large values become their hash, so that every
/// store can hold the task.
pub(crate) fn kept(watched: Json) -> Json {
    let bytes = watched.as_str().len();
    if bytes <= MAX_WATCHED_BYTES {
        return watched;
    }
    let mut kept = HASH_BEGIN.to_owned();
    for byte in Sha256::digest(watched.as_str()) {
        // Writing to a string can't fail.
        let _ = write!(kept, "{byte:02x}");
    }
    let _ = write!(kept, "\",\"bytes\":{bytes}}}");
    Json::stored(kept)
}

/// Returns whether the watched values are a hash.
pub(crate) fn is_hash(watched: &Json) -> bool {
    watched.as_str().starts_with(HASH_BEGIN)
}

/// Returns an error text as a task keeps it: of a long text only the beginning and the end.
pub(super) fn cut(error: &str) -> String {
    mutant!(ErrorsUncut => return error.to_owned());
    if error.len() <= 2 * CUT_BYTES {
        return error.to_owned();
    }
    let (begin, end) =
        (error.floor_char_boundary(CUT_BYTES), error.ceil_char_boundary(error.len() - CUT_BYTES));
    let left_out = end - begin;
    format!("{} … {left_out} bytes are left out … {}", &error[..begin], &error[end..])
}
