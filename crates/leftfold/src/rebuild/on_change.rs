//! A rebuild that begins by itself when the code of a projection has changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::handle::Rebuild;
use crate::backoff::Backoff;
use crate::fold::{ErasedProjection, WorkerContext};
use crate::store::Store;

/// Rebuilds a projection whose documents were built by code of another version, and switches to the
/// result.
pub(crate) async fn rebuild_if_changed<S: Store>(
    part: Arc<dyn ErasedProjection<S>>,
    setting: WorkerContext<S>,
) {
    let patience =
        Backoff::default().first(Duration::from_secs(1)).most(Duration::from_mins(1)).without_limit();
    for delay in patience.delays(setting.env.random()) {
        let rebuilt = async {
            let known = setting.store.generations(part.collection()).await?;
            if !known.differs(part.fingerprint()) || known.is_outdated(part.fingerprint()) {
                return Ok(());
            }
            tracing::info!(projection = %part.collection(), fingerprint = part.fingerprint(), "its code changed, rebuilding");
            let rebuild = Rebuild::begin(part.clone(), setting.clone()).await?;
            rebuild.built().await?;
            rebuild.switch().await
        };
        match rebuilt.await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(projection = %part.collection(), %error, "rebuilding failed, will go on");
            }
        }
        sleep(delay).await;
    }
}
