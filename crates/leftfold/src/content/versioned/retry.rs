//! Retries while the store is unavailable, and the doubt that they leave.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::Versioned;
use crate::content::store::Contents;
use crate::error::{Error, Kind, Result};
use crate::mutant;

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Sends a request to the store, and repeats it while the store is unavailable: all requests
    /// may be repeated. Also returns whether an earlier attempt may have arrived.
    pub(super) async fn with_retry<T, F: Future<Output = Result<T>>>(
        &self,
        mut request: impl FnMut() -> F,
    ) -> Result<(T, bool)> {
        let mut delays = self.retry.delays(self.env.random());
        let mut is_in_doubt = false;
        loop {
            match request().await {
                Err(error) if error.is_transient() => {
                    is_in_doubt |= error.is_unknown();
                    sleep(delays.next().ok_or_else(|| doubted(error, is_in_doubt))?).await;
                }
                Err(error) => return Err(error),
                Ok(answer) => return Ok((answer, is_in_doubt)),
            }
        }
    }
}

/// Returns the error to report if a write may have happened before it.
pub(super) fn doubted(error: Error, is_in_doubt: bool) -> Error {
    let says_nothing_written =
        matches!(error.kind(), Kind::Unavailable | Kind::Contended | Kind::Full | Kind::Conflict);
    if !(is_in_doubt && says_nothing_written) {
        return error;
    }
    mutant!(DoubtForgotten => return error);
    Error::new(
        Kind::Unknown,
        "an earlier attempt may have been written; read the document before you write it again",
    )
    .with_source(error)
}
