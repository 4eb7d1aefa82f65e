//! Hashes that identify scripts and items.

use sha2::{Digest as _, Sha256};

use crate::ScriptLimits;

/// Returns the identity of a script with its limits.
pub(crate) fn identity(file: &str, text: &str, limits: ScriptLimits) -> u64 {
    hash([file, text, &format!("{limits:?}")])
}

/// Returns a hash of texts: the first eight bytes of a SHA-256.
pub(crate) fn hash<const N: usize>(texts: [&str; N]) -> u64 {
    let mut digest = Sha256::new();
    for (text, number) in texts.iter().zip(0..) {
        if number > 0 {
            digest.update([0]);
        }
        digest.update(text);
    }
    let digest = digest.finalize();
    u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
}
