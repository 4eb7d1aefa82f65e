//! Rebuilding a read model beside the live one, and switching to it.
//!
//! A [generation](crate::documents::Generations) is folded by the same projector as the live one, from the first event on, into
//! records of its own: so it goes on after a crash at any point, and several may work on it. Readers see the live one until the
//! switch, which is one compare-and-swap.
//!
//! **Invariant**: what readers see never goes back. Before the switch the checkpoint of the live generation is *frozen*: a lane of its
//! mark has the number of the switch, so that no batch of any worker, which begins with a step of the checkpoint, is committed any
//! more. Then the other generation catches up with where the frozen one is, and only then it becomes live.
//!
//! Nobody has to stay alive for that: a worker that meets a switch under way completes it, and thaws a checkpoint that is frozen
//! for one that is over.

mod difference;
mod handle;
mod keep;
mod switch;

use std::time::Duration;

use tokio::time::sleep;

pub use difference::{Difference, Sampled};
pub use handle::{Progress, Rebuild};
pub(crate) use keep::{keep, rebuild_if_changed, tidy};
pub(crate) use switch::{frozen, undo};

use crate::documents::{Collection, Documents, Generations};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::retry::Backoff;

/// Changes what is known of a collection's generations, again and again where others were faster, and answers with what is
/// known then. `next` answers with `None` if nothing is to be changed.
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
            // It may have been kept: what is read next tells.
            Err(error) if error.is_transient() || error.is_unknown() => Some(error),
            Err(error) => return Err(error),
        };
        let Some(delay) = delays.next() else {
            let message =
                format!("changing the generations of {collection}: others keep changing them; try again");
            return Err(trouble.unwrap_or_else(|| Error::new(Kind::Conflict, message)));
        };
        sleep(delay).await;
    }
}
