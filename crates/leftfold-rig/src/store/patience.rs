//! Retries while a store is unavailable.

use leftfold::Result;
use tokio::time::Instant;

use super::TestedStore;
use crate::crew::pause;

/// Retries a call for as long as the store may be unavailable.
pub(crate) async fn patiently<S: TestedStore, T, F>(call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let begun = Instant::now();
    loop {
        match call().await {
            Err(error) if error.is_transient() && begun.elapsed() < S::AWAY => pause().await,
            answer => return answer,
        }
    }
}
