//! Following: the planner reads the feed of changed documents of one place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PIECE;
use super::lease::{LEASE, RENEW};
use crate::error::{Error, Kind, Result};
use crate::mutant;
use crate::react::reactor::Shared;
use crate::react::store::{
    Comparing, DocumentFeed as _, DocumentSource, FeedChanges, FeedItem, ReactionStore,
};

/// The interval at which the place of a feed is written although nothing has changed.
const STORE_EVERY: Duration = Duration::from_secs(30);

/// Follows the documents of one place while this process has the lease, and stands by otherwise.
pub(crate) async fn follow<S: ReactionStore>(shared: Arc<Shared<S>>, on: DocumentSource) {
    let name = place_name(&on);
    let (shared, on, name) = (&*shared, &on, &name);
    let lead = move |number| async move {
        shared.lags.mark_behind(on);
        tracing::info!(%on, number, "following changes");
        let led = Leader::new(shared, on, name, number).lead().await;
        // A leader that failed continues soon, and counts as behind until then.
        if led.is_ok() {
            shared.lags.remove(on);
        }
        led
    };
    shared.while_leading(name, lead).await;
}

/// Returns the name under which the lease and the place of a feed are stored.
pub(crate) fn place_name(on: &DocumentSource) -> String {
    format!("feed of {on}")
}

/// The process that follows a feed, as long as it has the lease of this number.
struct Leader<'a, S> {
    shared: &'a Shared<S>,
    on: &'a DocumentSource,
    name: &'a str,
    number: u64,
    /// The place in the feed up to which all changes are planned, as stored.
    place: Option<String>,
    renewed: Instant,
    stored: Instant,
    swept: Instant,
}

impl<'a, S: ReactionStore> Leader<'a, S> {
    fn new(shared: &'a Shared<S>, on: &'a DocumentSource, name: &'a str, number: u64) -> Self {
        let now = Instant::now();
        Self { shared, on, name, number, place: None, renewed: now, stored: now, swept: now }
    }

    /// Plans until the lease is lost.
    async fn lead(mut self) -> Result<()> {
        self.place = self.shared.store.feed_place(self.name).await?;
        let mut feed = self.open(self.place.clone()).await?;
        if self.place.is_none() {
            // Get the place before comparing, or changes during the comparison would be missed.
            let begin = self.begin(&mut feed).await?;
            // Earlier changes are unknown, even if a place was stored once.
            self.compare_all().await?;
            if !self.continue_from(begin).await? {
                return Ok(());
            }
        }
        // The feed may already have changes, as it may after a full batch.
        let mut is_more = true;
        while !self.shared.is_stopping() {
            if self.renewed.elapsed() >= RENEW && !self.renew().await? {
                return Ok(());
            }
            let patience =
                if is_more { Duration::ZERO } else { RENEW.saturating_sub(self.renewed.elapsed()) };
            let item = tokio::select! { biased;
                () = self.shared.stopping() => return Ok(()),
                item = feed.next(PIECE, patience) => item?,
            };
            let changes = match item {
                FeedItem::Changes(changes) => changes,
                FeedItem::Lost(reason) => {
                    feed = self.open(None).await?;
                    let begin = self.begin(&mut feed).await?;
                    self.compare_after_loss(&reason).await?;
                    if !self.continue_from(begin).await? {
                        return Ok(());
                    }
                    continue;
                }
            };
            is_more = changes.documents.values().map(BTreeSet::len).sum::<usize>() >= PIECE;
            if !self.plan(changes).await? {
                return Ok(());
            }
            if !is_more {
                self.shared.lags.mark_current(self.on);
            }
            if self.swept.elapsed() >= self.shared.sweep_every {
                self.shared.sweep(self.on).await?;
                self.swept = Instant::now();
            }
        }
        Ok(())
    }

    async fn open(&self, place: Option<String>) -> Result<S::Feed> {
        self.shared.store.follow(vec![self.on.clone()], place).await
    }

    /// Renews the lease. Returns whether this process still has it.
    async fn renew(&mut self) -> Result<bool> {
        let number = self.shared.store.take_lease(self.name, &self.shared.owner, LEASE).await?;
        self.renewed = Instant::now();
        Ok(number == Some(self.number))
    }

    /// Returns the first place of a feed that was opened without one.
    async fn begin(&self, feed: &mut S::Feed) -> Result<String> {
        match feed.next(PIECE, Duration::ZERO).await? {
            FeedItem::Changes(changes) => {
                for (on, ids) in changes.documents {
                    self.shared.plan(&on, ids).await?;
                }
                Ok(changes.through)
            }
            FeedItem::Lost(reason) => {
                let message = format!(
                    "following {}: the store lost changes of a new feed: {reason}; the feed is opened again",
                    self.on
                );
                Err(Error::new(Kind::Unavailable, message))
            }
        }
    }

    /// Stores the place of a new feed, and wakes all processes. Returns whether this process still
    /// has the lease.
    async fn continue_from(&mut self, place: String) -> Result<bool> {
        if !self.store_place(&place).await? {
            return Ok(false);
        }
        self.place = Some(place);
        self.shared.wake().await?;
        Ok(true)
    }

    /// Plans tasks for changes, and stores the place behind them. Returns whether this process
    /// still has the lease.
    async fn plan(&mut self, changes: FeedChanges) -> Result<bool> {
        let is_quiet = changes.documents.values().all(BTreeSet::is_empty);
        if !is_quiet {
            self.shared.lags.mark_behind(self.on);
            mutant!(PlaceFirst => self.store_place(&changes.through).await?);
        }
        for (on, ids) in changes.documents {
            self.shared.plan(&on, ids).await?;
        }
        let is_new = self.place.as_ref() != Some(&changes.through);
        if is_new && (!is_quiet || self.stored.elapsed() >= STORE_EVERY) {
            if !self.store_place(&changes.through).await? {
                return Ok(false);
            }
            self.stored = Instant::now();
            self.place = Some(changes.through);
        }
        Ok(true)
    }

    /// Stores the place of the feed. Returns whether this process still has the lease.
    async fn store_place(&self, place: &str) -> Result<bool> {
        self.shared.store.put_feed_place(self.name, self.number, Some(place.to_owned())).await
    }

    /// Makes all reactions compare their documents, because changes were lost.
    async fn compare_after_loss(&self, reason: &str) -> Result<()> {
        tracing::warn!(on = %self.on, reason, "changes were lost; all documents are compared");
        mutant!(LostIsNothing => return Ok(()));
        self.compare_all().await
    }

    /// Makes all reactions to these documents compare them.
    async fn compare_all(&self) -> Result<()> {
        for registered in self.shared.store.registered().await? {
            if registered.on.as_ref() == Some(self.on) {
                self.shared
                    .change(&registered.name, |registered| registered.comparing = Some(Comparing::ToBegin))
                    .await?;
            }
        }
        Ok(())
    }
}
