//! Repairs of a batch before it is committed: retries of failed folds, and documents that another
//! writer changed.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::super::batch::FoldState;
use super::super::replay::Replay;
use super::super::slot::{DocumentSlot, Loss};
use super::super::{FoldOptions, threads};
use super::run::Run;
use super::{Projector, stopped};
use crate::documents::Parked;
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Partition, Position};
use crate::fold::Projection;
use crate::mutant;
use crate::store::Store;

/// The number of attempts to fold one event.
struct Tries {
    partition: Partition,
    position: Position,
    count: u32,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

impl Tries {
    fn at(failure: &Parked, options: &FoldOptions, env: &dyn Env) -> Self {
        let delays = Box::new(options.retry.delays(env.random()));
        // The batch has already tried it once.
        Self { partition: failure.partition, position: failure.position, count: 1, delays }
    }
}

impl<S: Store, P: Projection> Run<'_, S, P> {
    /// Folds documents again from their stored state if their fold failed or another writer changed
    /// them. A failing fold is retried according to the policy, then its document is parked.
    pub(super) async fn repair(&mut self) -> Result<()> {
        let Projector { store, folder, env, options, .. } = self.projector;
        let mut tries: HashMap<DocumentId, Tries> = HashMap::new();
        while std::mem::take(&mut self.state.suspect) {
            let lost = self.state.documents.lost();
            let retried = lost.iter().filter_map(|id| self.state.documents.get(id)?.loss()?.error.as_ref());
            self.state.tally.retried += retried.filter(|error| (options.should_retry)(error)).count() as u64;
            let (from, through) = (self.checkpoint.mark.clone(), self.state.progress.clone());
            let again = {
                let (store, folder, env, lost) = (store.clone(), folder.clone(), env.clone(), lost.clone());
                threads::drive(async move {
                    let mut state = FoldState::careful(from.clone());
                    let ahead = folder.load_documents(&store, &mut state, lost).await?;
                    folder.replay(&store, &*env, &mut state, Replay::Range { from, through }).await?;
                    Ok((state, ahead))
                })
            };
            let (mut state, ahead) = self.contained(async { again.await? }).await?;
            self.look_at_streams_again(ahead);
            // All documents of a batch must be folded with and without the same streams.
            let waits = |parked: &&Parked| parked.position <= self.state.progress.position(parked.partition);
            for parked in state.streams.slots().filter_map(DocumentSlot::parked).filter(waits) {
                mutant!(MixedBatch => break);
                let known =
                    self.state.streams.get(&DocumentId::from(&parked.stream)).and_then(DocumentSlot::parked);
                if known.is_none() {
                    let message = "folding documents again: a stream was parked meanwhile; starting over \
                        from the checkpoint";
                    return Err(Error::new(Kind::Conflict, message));
                }
            }
            let mut pause = None;
            for id in lost {
                let Some(mut slot) = state.documents.take(&id) else { continue };
                if let Some(Loss { failure: Some(failure), error: Some(error), .. }) = slot.loss() {
                    let said = format!("{id}: {error} (revision {} of {})", failure.revision, failure.stream);
                    self.state.tally.last_error = Some(said);
                    let tries =
                        tries.entry(id.clone()).or_insert_with(|| Tries::at(failure, options, &**env));
                    if (tries.partition, tries.position) != (failure.partition, failure.position) {
                        *tries = Tries::at(failure, options, &**env);
                    }
                    tries.count += 1;
                    match tries.delays.next().filter(|_| (options.should_retry)(error)) {
                        Some(delay) => {
                            pause = pause.max(Some(delay));
                            self.state.suspect = true;
                        }
                        None => slot.park(tries.count),
                    }
                }
                self.state.documents.replace(&id, slot);
            }
            if let Some(pause) = pause {
                tokio::select! { biased;
                    () = stopped(&mut self.stop) => {
                        let message = "waiting to retry a fold: the worker was stopped; the batch is folded \
                            at the next start";
                        return Err(Error::new(Kind::Stopped, message));
                    }
                    () = sleep(pause) => {}
                }
            }
        }
        Ok(())
    }
}
