//! Rebuilding a read model beside the live one, and switching to it.
//!
//! The same projector that folds the live [generation](crate::documents::Generations) folds the new
//! one, from the first event on, into separate records. It therefore survives a crash at any point,
//! and several workers may share it. Readers see the live generation until the switch, which is one
//! compare-and-swap.
//!
//! **Invariant**: readers never see an older state. Before the switch the checkpoint of the live
//! generation is *frozen*: a lane of its mark gets the number of the switch. Every batch begins
//! with a step of the checkpoint, so no worker can commit one any more. Then the other generation
//! catches up with the frozen one, and only then it becomes live.
//!
//! No process has to survive for that. A worker that finds a switch under way completes it, and
//! thaws a checkpoint that is frozen for a switch that is over.

mod difference;
mod handle;
mod on_change;
mod switch;

use std::time::Duration;

use tokio::time::sleep;

pub use difference::{Difference, Sampled};
pub use handle::{Progress, Rebuild};
pub(crate) use on_change::rebuild_if_changed;
pub(crate) use switch::{complete_switch, undo};

use crate::backoff::Backoff;
use crate::documents::{Collection, Documents, Generations};
use crate::env::Env;
use crate::error::{Error, Kind, Result};

/// Changes the generations of a collection, retrying if other writers were faster, and returns the
/// result. `next` returns `None` if there is nothing to change.
pub(crate) async fn change<S: Documents>(
    store: &S,
    env: &dyn Env,
    collection: &Collection,
    next: impl Fn(&Generations) -> Option<Generations> + Send,
) -> Result<Generations> {
    let backoff = Backoff::default().first(Duration::from_millis(2)).most(Duration::from_millis(500));
    let mut delays = backoff.limit(20).delays(env.random());
    loop {
        let known = store.generations(collection).await?;
        let Some(next) = next(&known) else { return Ok(known) };
        let trouble = match store.put_generations(collection, known.revision, next.clone()).await {
            Ok(true) => return Ok(next),
            Ok(false) => None,
            // The write may have succeeded: the next read shows it.
            Err(error) if error.is_transient() || error.is_unknown() => Some(error),
            Err(error) => return Err(error),
        };
        let Some(delay) = delays.next() else {
            let message = format!(
                "changing the generations of {collection}: other writers keep changing them; try again"
            );
            return Err(trouble.unwrap_or_else(|| Error::new(Kind::Conflict, message)));
        };
        sleep(delay).await;
    }
}

/// Deletes the generations that are marked for deletion.
pub(crate) async fn tidy<S: Documents>(store: &S, env: &dyn Env, collection: &Collection) -> Result<()> {
    for number in store.generations(collection).await?.dropping {
        store.drop_generation(&collection.generation(number)).await?;
        change(store, env, collection, |known| known.dropped(number)).await?;
    }
    Ok(())
}
