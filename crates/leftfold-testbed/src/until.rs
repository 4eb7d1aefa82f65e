//! Waiting for something to become so.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;

/// How long a server may take to do what usually takes it a second or two: machines that run tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(20);

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F>(doing: &str, ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if begun.elapsed() > PATIENCE {
            return Err(Error::new(doing, format!("it is not done after {PATIENCE:?}")));
        }
        sleep(PAUSE).await;
    }
}
