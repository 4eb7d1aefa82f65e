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
    projection: Arc<dyn ErasedProjection<S>>,
    context: WorkerContext<S>,
) {
    let patience =
        Backoff::default().first(Duration::from_secs(1)).most(Duration::from_mins(1)).without_limit();
    for delay in patience.delays(context.env.random()) {
        let rebuilt = async {
            let known = context.store.generations(projection.collection()).await?;
            if !known.differs(projection.fingerprint()) || known.is_outdated(projection.fingerprint()) {
                return Ok(());
            }
            tracing::info!(projection = %projection.collection(), fingerprint = projection.fingerprint(), "code changed, rebuilding");
            let rebuild = Rebuild::begin(projection.clone(), context.clone()).await?;
            rebuild.built().await?;
            rebuild.switch().await
        };
        match rebuilt.await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(projection = %projection.collection(), %error, "rebuild failed, retrying");
            }
        }
        sleep(delay).await;
    }
}
