//! Checks: documents are observed again when a filter depends on the time, or when an observation
//! was not possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::PIECE;
use crate::error::Result;
use crate::react::reactor::Shared;
use crate::react::store::{DocumentSource, ReactionStore};
use crate::react::task::TaskKey;
use crate::react::time::until;

/// The longest wait before the planner looks again for documents to check or compare.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Checks documents that are due, and compares all documents where that is needed, for the
/// reactions that this process knows.
pub(crate) async fn check_and_compare<S: ReactionStore>(shared: Arc<Shared<S>>) {
    let mut pauses = shared.pauses();
    let mut wakes = u64::MAX;
    while !shared.is_stopping() {
        let checked = async {
            let registered = shared.refresh().await?;
            let next = shared.check().await?;
            Ok((shared.compare(registered).await?, next))
        };
        let wait = match checked.await {
            Ok((true, _)) => Duration::ZERO,
            Ok((false, next)) => {
                pauses = shared.pauses();
                next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
            }
            Err(error) => {
                shared.failed(&error, "checking documents");
                let pause = pauses.next().unwrap_or(LOOK_EVERY);
                sleep(pause).await;
                Duration::ZERO
            }
        };
        if wait.is_zero() {
            continue;
        }
        tokio::select! { biased;
            () = shared.stopping() => return,
            woken = shared.store.woken(wakes, wait) => match woken {
                Ok(number) => wakes = number,
                Err(error) => {
                    shared.failed(&error, "waiting for documents to check");
                    shared.wait(Duration::from_secs(1)).await;
                }
            },
        }
    }
}

impl<S: ReactionStore> Shared<S> {
    /// Checks documents that are due. Returns the time until the next one is due.
    async fn check(&self) -> Result<Option<Duration>> {
        loop {
            let names: Vec<_> = self.current().iter().map(|definition| definition.name.clone()).collect();
            if names.is_empty() {
                return Ok(None);
            }
            let due = self.store.tasks_to_check(names, PIECE).await?;
            if due.tasks.is_empty() {
                return Ok(due.next.map(|next| until(next, due.now)));
            }
            let mut by_place: BTreeMap<DocumentSource, BTreeSet<TaskKey>> = BTreeMap::new();
            for task in due.tasks {
                let definition = self.definitions.iter().find(|one| one.name == task.key.reaction);
                if let Some(on) = definition.and_then(|one| one.on.clone()) {
                    by_place.entry(on).or_default().insert(task.key);
                }
            }
            for (on, keys) in by_place {
                self.plan_tasks(&on, keys).await?;
            }
        }
    }
}
