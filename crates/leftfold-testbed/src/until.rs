//! Polling with a timeout.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;

/// The time limit for an operation of a server. It usually takes a second or two, but machines that
/// run tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(20);

/// Calls `check` repeatedly until it returns a value.
pub(crate) async fn until<T, F>(doing: &str, check: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    let begun = Instant::now();
    loop {
        if let Some(answer) = check().await? {
            return Ok(answer);
        }
        if begun.elapsed() > PATIENCE {
            return Err(Error::new(doing, format!("not done after {PATIENCE:?}")));
        }
        sleep(PAUSE).await;
    }
}
