//! The handle of a rebuild: its progress, its difference, and the decision to switch or cancel.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::difference::{Difference, compare};
use super::switch::{complete, fold_beside, switch};
use super::{change, tidy};
use crate::documents::{Generations, folded};
use crate::error::{Error, Kind, Result};
use crate::fold::{ErasedProjection, SharedPulse, WorkerContext};
use crate::mark::Mark;
use crate::store::Store;

/// A rebuild that this process works on while it holds this handle. If the handle is dropped or the
/// process dies, the next [`App::rebuild`](crate::App::rebuild) resumes it.
///
/// ```
/// # use leftfold::{Event, Leftfold, Memory, Projection, fold};
/// # struct Totals;
/// # impl Projection for Totals {
/// #     type Event = serde_json::Value;
/// #     type Document = u64;
/// #     fn name(&self) -> &str { "totals" }
/// #     fn fold(&self, total: Option<u64>, _: &Event<serde_json::Value>) -> Result<Option<u64>, fold::Error> {
/// #         Ok(Some(total.unwrap_or(0) + 1))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Leftfold::on(Memory::default()).projection(Totals).start().await?;
/// # app.append_events("a", leftfold::Expected::Any, vec![leftfold::NewEvent::new("counted", leftfold::Json::parse("1")?)?]).await?;
/// # app.caught_up().await?;
/// let rebuild = app.rebuild("totals").await?;
/// println!("{:?}", rebuild.progress().await?);         // while it is built, as often as one likes
/// rebuild.built().await?;
/// let difference = rebuild.difference(10).await?;      // what would be another document, with ten samples
/// if difference.is_none() {
///     rebuild.switch().await?;
/// } else {
///     rebuild.cancel().await?;
/// }
/// app.undo("totals").await?;
/// app.stop().await;
/// # Ok(()) }
/// ```
#[must_use = "it is built only while it is held"]
pub struct Rebuild<S> {
    projection: Arc<dyn ErasedProjection<S>>,
    context: WorkerContext<S>,
    number: u32,
    pulse: SharedPulse,
    work: JoinSet<Result<()>>,
    stop: watch::Sender<bool>,
}

impl<S> std::fmt::Debug for Rebuild<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let projection = self.projection.collection();
        f.debug_struct("Rebuild")
            .field("projection", projection)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// The progress of a rebuild.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// The generation that is being built.
    pub generation: u32,
    /// The number of events it has processed.
    pub done: u64,
    /// The number of events in the log now.
    pub total: u64,
    /// The recent number of events folded per second by this process.
    pub events_per_second: f64,
    /// The estimated time until it has caught up, if known.
    pub remaining: Option<Duration>,
    /// The last error.
    pub last_error: Option<String>,
}

impl<S: Store> Rebuild<S> {
    /// The number of remaining events at which a rebuild counts as built.
    const NEAR: u64 = 1_000;

    pub(crate) async fn begin(
        projection: Arc<dyn ErasedProjection<S>>,
        context: WorkerContext<S>,
    ) -> Result<Self> {
        let (store, name, fingerprint) = (&context.store, projection.collection(), projection.fingerprint());
        if store.generations(name).await?.switching.is_some() {
            // Another process has begun to switch, and may be dead.
            let (_running, mut stop) = watch::channel(false);
            complete(&projection, &context, true, &mut stop).await?;
        }
        let known = change(store, &*context.env, name, |known| known.building(fingerprint)).await?;
        let Some(building) = known.building.filter(|_| known.switching.is_none()) else {
            let message = format!("rebuilding {name}: a switch is under way; try again when it is done");
            return Err(Error::new(Kind::Conflict, message));
        };
        tidy(store, &*context.env, name).await?;
        let number = building.number;
        store.prepare(&name.generation(number)).await?;
        let (stop, told) = watch::channel(false);
        let (pulse, mut work) = (SharedPulse::default(), JoinSet::new());
        let beside = WorkerContext { owner: format!("{} rebuilding", context.owner), ..context.clone() };
        work.spawn(fold_beside(projection.clone(), beside, number, pulse.clone(), told));
        Ok(Self { projection, context, number, pulse, work, stop })
    }

    /// Returns the number of the generation that is being built.
    pub fn generation(&self) -> u32 {
        self.number
    }

    /// Returns the progress.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate for people to read"
    )]
    pub async fn progress(&self) -> Result<Progress> {
        let head = self.context.store.heads().await?;
        let at = self.at().await?;
        let (total, left) = (Mark::default().distance(&head), at.distance(&head));
        let pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rate = pulse.events_per_second;
        let remaining =
            (left > 0 && rate >= 1.0).then(|| Duration::from_secs((left as f64 / rate).ceil() as u64));
        Ok(Progress {
            generation: self.number,
            done: total - left,
            total,
            events_per_second: rate,
            remaining: if left == 0 { Some(Duration::ZERO) } else { remaining },
            last_error: pulse.last_error,
        })
    }

    /// Waits until it has nearly caught up with the log.
    pub async fn built(&self) -> Result<()> {
        let store = &self.context.store;
        let generation = self.projection.collection().generation(self.number);
        loop {
            let head = store.heads().await?;
            let mut at = self.at().await?;
            let is_near = at.distance(&head) <= Self::NEAR;
            while !at.covers(&head) {
                self.still_building().await?;
                // Wake up regularly to notice a cancellation.
                let advanced = tokio::time::timeout(Duration::from_secs(1), store.advanced(&generation, &at));
                if let Ok(advanced) = advanced.await {
                    at = advanced?;
                }
            }
            if is_near {
                return Ok(());
            }
        }
    }

    /// Compares all documents with the live ones at the same place in the log, with at most
    /// `samples` samples. It blocks no other work. Call it once the rebuild is
    /// [built](Self::built): documents that are not folded yet would only count as moving.
    pub async fn difference(&self, samples: usize) -> Result<Difference> {
        let known = self.still_building().await?;
        let name = self.projection.collection();
        let (live, built) = (name.generation(known.live.number), name.generation(self.number));
        compare(&self.context.store, &live, &built, samples).await
    }

    /// Makes the rebuild live. The documents that were live are kept for an
    /// [undo](crate::App::undo), until the next rebuild. Reactions compare all documents, and run
    /// for those that differ in the fields they watch.
    ///
    /// If this process dies meanwhile, other workers of this projection complete the switch.
    pub async fn switch(mut self) -> Result<()> {
        self.still_building().await?;
        // The switch folds the rest. Ending here releases the lease, so that the workers that fold
        // this generation once it is live need not wait.
        self.end().await;
        switch(&self.projection, &self.context, self.number).await?;
        tidy(&self.context.store, &*self.context.env, self.projection.collection()).await
    }

    /// Builds it and makes it live, in one call. Returns the difference.
    pub async fn finish(self, samples: usize) -> Result<Difference> {
        self.built().await?;
        let difference = self.difference(samples).await?;
        self.switch().await?;
        Ok(difference)
    }

    /// Leaves it as it is, for the next [`App::rebuild`](crate::App::rebuild) to resume at once. If
    /// the handle is only dropped, other processes wait until its lease ends.
    pub async fn leave(mut self) {
        self.end().await;
    }

    /// Cancels the rebuild and deletes its documents.
    pub async fn cancel(mut self) -> Result<()> {
        self.end().await;
        let WorkerContext { store, env, .. } = &self.context;
        let number = self.number;
        let is_ours = move |known: &Generations| {
            known.building.as_ref().is_some_and(|building| building.number == number)
        };
        let name = self.projection.collection();
        change(store, &**env, name, |known| known.cancelled().filter(|_| is_ours(known))).await?;
        tidy(store, &**env, name).await
    }

    async fn at(&self) -> Result<Mark> {
        let generation = self.projection.collection().generation(self.number);
        Ok(folded(&self.context.store.checkpoint(&generation).await?.mark))
    }

    async fn still_building(&self) -> Result<Generations> {
        let name = self.projection.collection();
        let known = self.context.store.generations(name).await?;
        if known.building.as_ref().is_some_and(|building| building.number == self.number) {
            return Ok(known);
        }
        let message = format!(
            "rebuilding {name}: generation {} is no longer being built: it was switched, cancelled or \
             replaced by another rebuild; check the status",
            self.number
        );
        Err(Error::new(Kind::Conflict, message))
    }

    /// Ends the work after the current batch.
    async fn end(&mut self) {
        self.stop.send_replace(true);
        while self.work.join_next().await.is_some() {}
    }
}
