//! The audit trail: what operators did, when, and why. A hidden collection of the store keeps it,
//! so that every process sees all of it.
//!
//! An action is recorded after it is done, with its outcome. Entries never change, and are listed
//! with the newest first.
//!
//! ```
//! use leftfold::audit::{Action, Trail};
//! use leftfold::{Memory, System};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leftfold::Result<()> {
//! let trail = Trail::on(Memory::default());
//! let undo = Action::new("ann", "undo", "carts").because(Some("the new script counts twice")).ended("switched back");
//! trail.record(&System, undo).await?;
//! let (entries, _) = trail.list(None, 100).await?;
//! assert_eq!((entries[0].actor.as_str(), entries[0].action.as_str()), ("ann", "undo"));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::documents::{
    Collection, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Documents, Header, Record,
};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::mark::{Lane, Mark};

/// The maximum number of characters of each text.
const MAX_TEXT: usize = 2_000;
/// The maximum number of retries of a write with an unknown outcome.
const TRIES: usize = 10;

/// An action of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// The name of the token, or `cli:` and the name of the user.
    pub actor: String,
    /// The action: `retry-parked`, `undo`, …
    pub action: String,
    /// The target of the action: a collection, a document, a stream, …
    pub target: String,
    /// The reason that the operator gave.
    pub reason: Option<String>,
    /// The outcome of the action.
    pub outcome: String,
}

impl Action {
    /// Creates an action that has been done.
    pub fn new(actor: impl Into<String>, action: impl Into<String>, target: impl Into<String>) -> Self {
        let (actor, action, target) = (actor.into(), action.into(), target.into());
        Self { actor, action, target, reason: None, outcome: "done".to_owned() }
    }

    /// Adds the reason, if there is one.
    #[must_use]
    pub fn because(self, reason: Option<&str>) -> Self {
        Self { reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned), ..self }
    }

    /// Sets the outcome.
    #[must_use]
    pub fn ended(self, outcome: impl Into<String>) -> Self {
        Self { outcome: outcome.into(), ..self }
    }

    fn shortened(mut self) -> Self {
        let texts = [&mut self.actor, &mut self.action, &mut self.target, &mut self.outcome];
        for text in texts.into_iter().chain(&mut self.reason) {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
                text.truncate(end);
                text.push('…');
            }
        }
        self
    }
}

/// An action in the trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The time when it was recorded.
    pub at: Timestamp,
    /// The name of the token, or `cli:` and the name of the user.
    pub actor: String,
    /// The action: `retry-parked`, `undo`, …
    pub action: String,
    /// The target of the action: a collection, a document, a stream, …
    pub target: String,
    /// The reason that the operator gave.
    #[serde(default)]
    pub reason: Option<String>,
    /// The outcome of the action.
    pub outcome: String,
}

/// The audit trail of a store.
#[derive(Clone, Debug)]
pub struct Trail<S>(S);

impl<S: Documents> Trail<S> {
    /// Returns the audit trail of this store.
    pub fn on(store: S) -> Self {
        Self(store)
    }

    /// Returns the hidden collection: a generation that no rebuild ever reaches, even if a read
    /// model has this name.
    fn collection() -> Result<Collection> {
        Ok(Collection::new("audit")?.generation(u32::MAX))
    }

    /// Records an action. It is durable when this returns.
    pub async fn record(&self, env: &dyn Env, action: Action) -> Result<()> {
        let collection = Self::collection()?;
        self.0.prepare(&collection).await?;
        let at = env.now();
        let Action { actor, action, target, reason, outcome } = action.shortened();
        let body = Json::of(&AuditEntry { at, actor, action, target, reason, outcome })?;
        // Ids are listed in ascending order, and the newest entry comes first.
        let id = format!("{:019}-{:016x}", i64::MAX - at.as_microsecond(), env.random());
        let mark = Mark::from_iter([(Lane::named("entries"), 1)]);
        let record =
            Record { id: DocumentId::new(id)?, header: Header { mark, parked: None }, body: Some(body) };
        let changes = vec![CollectionWrites {
            collection: collection.clone(),
            writes: vec![DocumentWrite { expected: None, record }],
        }];
        let commit = Arc::new(Commit { advance: None, changes });
        let mut delays = Backoff::default().limit(TRIES).delays(env.random());
        loop {
            let error = match self.0.commit(Arc::clone(&commit)).await? {
                // The id is random, so a conflict means that an earlier attempt of this write
                // succeeded.
                CommitOutcome::Applied | CommitOutcome::Conflict(_) => return Ok(()),
                CommitOutcome::Unknown(error) => error,
            };
            let Some(delay) = delays.next() else { return Err(error) };
            sleep(delay).await;
        }
    }

    /// Returns a page of entries, newest first, after the end of the previous page. Also returns
    /// the end of this page, if there may be more.
    pub async fn list(&self, after: Option<&str>, most: usize) -> Result<(Vec<AuditEntry>, Option<String>)> {
        let collection = Self::collection()?;
        let after = after.map(DocumentId::new).transpose()?;
        // The collection may not exist before the first action is recorded.
        self.0.prepare(&collection).await?;
        let records = self.0.scan(&collection, after, most).await?;
        let end = records.last().filter(|_| records.len() == most).map(|record| record.id.to_string());
        let read = |record: &Record| {
            let body = record.body.as_ref()?;
            Some(body.to().map_err(|error| {
                Error::new(Kind::Format, format!("reading the audit entry {}: {error}", record.id))
            }))
        };
        Ok((records.iter().filter_map(read).collect::<Result<_>>()?, end))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::Memory;

    /// A clock that advances with each reading.
    #[derive(Default)]
    struct Clock(AtomicI64);

    impl Env for Clock {
        fn now(&self) -> Timestamp {
            Timestamp::from_microsecond(self.0.fetch_add(1, Ordering::Relaxed)).unwrap()
        }

        fn random(&self) -> u64 {
            7
        }
    }

    #[tokio::test]
    async fn entries_are_listed_with_the_newest_first_in_pages() {
        let (trail, clock) = (Trail::on(Memory::default()), Clock::default());
        assert_eq!(trail.list(None, 10).await.unwrap(), (Vec::new(), None));
        for number in 1..=5 {
            let action = Action::new("ann", "undo", number.to_string()).because(Some("why not"));
            trail.record(&clock, action).await.unwrap();
        }
        let (mut targets, mut after) = (Vec::new(), None);
        loop {
            let (page, end) = trail.list(after.as_deref(), 2).await.unwrap();
            targets.extend(page.into_iter().map(|entry| entry.target));
            after = end;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(targets, ["5", "4", "3", "2", "1"]);
    }

    #[tokio::test]
    async fn what_is_long_is_cut() {
        let trail = Trail::on(Memory::default());
        let action = Action::new("ann", "undo", "ä".repeat(10_000)).because(Some("")).ended("done");
        trail.record(&Clock::default(), action).await.unwrap();
        let (page, _) = trail.list(None, 1).await.unwrap();
        assert_eq!((page[0].target.chars().count(), &page[0].reason), (MAX_TEXT + 1, &None));
    }
}
