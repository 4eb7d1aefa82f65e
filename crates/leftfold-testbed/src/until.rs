//! Waiting for something to become so.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;

/// How long a server may take to do what usually takes it a second or two: machines that run tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(20);

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(
    doing: &str,
    mut ask: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
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
