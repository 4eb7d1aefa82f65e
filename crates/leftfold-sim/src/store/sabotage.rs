//! Planted bugs at the boundary of the store: they change the requests of the engine, or the
//! responses it sees. Without a planted bug everything passes unchanged.

use std::sync::{Arc, PoisonError};

use leftfold::content::{ContentWrite, Contents as _};
use leftfold::documents::{Commit, CommitOutcome};
use leftfold::log::{Entry, LogPage};
use leftfold::planted::{Bug, planted};
use leftfold::react::{ExternalCollection, Registered, Task, TaskChange};
use leftfold::sequence::{Settled, Settlement, Totals};
use leftfold::{
    AppendError, Documents, Error, EventId, Kind, Position, Result, Revision, Sequences, StreamId,
};

use crate::reactions::ledger::Wrote;
use crate::store::SimStore;

/// Returns the commit to send.
pub(crate) async fn commit(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    let holds_lease = || {
        let holders = store.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let projection = commit.advance.as_ref().map(|advance| &advance.projection);
        projection.is_none_or(|projection| holders.get(projection).is_none_or(|holder| *holder == store.name))
    };
    let unguarded = planted(Bug::SkipGuard) || planted(Bug::GuardByLease) && holds_lease();
    let overwrites = planted(Bug::OverwriteAfterConflict);
    let changed = [Bug::GuardByMark, Bug::DropTombstones, Bug::StreamsLast].into_iter().any(planted);
    if !(unguarded || overwrites || changed) {
        return Ok(Arc::clone(commit));
    }
    let mut commit = (**commit).clone();
    if let Some(advance) = commit.advance.as_mut().filter(|_| unguarded) {
        advance.from = store.shared.inner.checkpoint(&advance.projection).await?.mark;
    }
    for changes in &mut commit.changes {
        for write in &mut changes.writes {
            let stored =
                store.shared.inner.load(&changes.collection, vec![write.record.id.clone()]).await?.pop();
            let stored = stored.map(|record| record.header);
            let same_mark = match (&stored, &write.expected) {
                (Some(stored), Some(expected)) => stored.mark == expected.mark,
                _ => false,
            };
            if unguarded || overwrites || planted(Bug::GuardByMark) && same_mark {
                write.expected = stored;
            }
            if planted(Bug::DropTombstones) && write.record.body.is_none() {
                write.record.header.mark = leftfold::Mark::default();
            }
        }
    }
    if planted(Bug::StreamsLast) {
        commit.changes.reverse();
    }
    Ok(Arc::new(commit))
}

/// Returns the outcome of a commit as the engine sees it.
pub(crate) async fn outcome(
    store: &SimStore,
    commit: &Commit,
    outcome: CommitOutcome,
) -> Result<CommitOutcome> {
    let Some(advance) = commit.advance.as_ref().filter(|_| planted(Bug::CheckpointIsProof)) else {
        return Ok(outcome);
    };
    let at = store.shared.inner.checkpoint(&advance.projection).await?.mark;
    Ok(if at == advance.to.mark { CommitOutcome::Applied } else { outcome })
}

/// Returns the response to a commit with an unknown outcome.
pub(crate) fn unknown_commit() -> CommitOutcome {
    if planted(Bug::UnknownIsSuccess) {
        return CommitOutcome::Applied;
    }
    CommitOutcome::Unknown(Error::new(Kind::Unknown, "commit: lost the connection"))
}

/// Returns the response to an append with an unknown outcome.
pub(crate) fn unknown_append(stream: &StreamId) -> AppendError {
    if planted(Bug::UnknownIsFailure) {
        let (expected, actual) = (Revision(0), Revision(0));
        return AppendError::WrongRevision { stream: stream.clone(), expected, actual };
    }
    AppendError::Store(Error::new(Kind::Unknown, "append: lost the connection"))
}

/// Returns the response to a settlement with an unknown outcome.
pub(crate) fn unknown_settlement() -> Settled {
    if planted(Bug::UnknownIsSettled) {
        return Settled::Applied { before: Position(0) };
    }
    Settled::Unknown(Error::new(Kind::Unknown, "settle: lost the connection"))
}

/// Returns the settlement to send.
pub(crate) async fn settlement(store: &SimStore, settlement: &Arc<Settlement>) -> Result<Arc<Settlement>> {
    let bugs = [
        Bug::SettleUnseen,
        Bug::ReleaseLost,
        Bug::ReleaseTwice,
        Bug::WaitNotWritten,
        Bug::Boundless,
        Bug::ConflictDropped,
        Bug::HoldNothing,
    ];
    if !bugs.into_iter().any(planted) {
        return Ok(Arc::clone(settlement));
    }
    let mut settlement = (**settlement).clone();
    for step in &mut settlement.steps {
        let survey = store.shared.inner.survey(vec![step.stream.clone()]).await?;
        let standing = survey.streams.get(&step.stream).cloned().unwrap_or_default();
        if planted(Bug::SettleUnseen) {
            step.append.retain(|(revision, _)| *revision > standing.last);
            step.seen = standing.seen();
        }
        if planted(Bug::ReleaseLost) && !step.unhold.is_empty() {
            step.append.retain(|(revision, _)| !step.unhold.contains(revision));
        }
        if planted(Bug::ReleaseTwice) {
            step.unhold.clear();
        }
        if planted(Bug::WaitNotWritten) {
            step.waiting = standing.waiting;
        }
        if planted(Bug::HoldNothing) {
            step.hold.clear();
        }
    }
    if planted(Bug::Boundless) {
        settlement.bounds = Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX };
    }
    if planted(Bug::ConflictDropped) {
        settlement.conflicts.clear();
    }
    Ok(Arc::new(settlement))
}

/// Returns a page as the engine sees it.
pub(crate) fn page(mut page: LogPage) -> LogPage {
    if planted(Bug::WrongPage) && page.more {
        page.through.0 += 1;
    }
    page
}

/// Returns the entries to append.
pub(crate) fn entries(store: &SimStore, mut entries: Vec<Entry>) -> Vec<Entry> {
    if planted(Bug::ForgetIds) {
        for entry in &mut entries {
            let id = format!("{}-{}", entry.id, store.shared.faults.dice().next());
            if let Ok(id) = EventId::new(id) {
                entry.id = id;
            }
        }
    }
    entries
}

/// Returns the change of a task to send, alone or in a transaction.
pub(crate) fn task(change: TaskChange, before: Option<&Task>, how: Wrote) -> TaskChange {
    let unseen = match how {
        Wrote::Alone => planted(Bug::SaveUnseen),
        Wrote::InTransaction => planted(Bug::CompleteUnseen),
    };
    match (change, before) {
        (TaskChange::Update(_, task), Some(before)) if unseen => TaskChange::Update(before.version, task),
        (change, _) => change,
    }
}

/// Returns the reaction to register.
pub(crate) fn registered(mut reaction: Registered) -> Registered {
    if planted(Bug::PauseNothing) {
        reaction.paused = false;
    }
    reaction
}

/// Returns the write of a document without events to send.
pub(crate) async fn content(
    store: &SimStore,
    on: &ExternalCollection,
    mut write: ContentWrite,
) -> Result<ContentWrite> {
    let unguarded = planted(Bug::ContentUnguarded) || planted(Bug::DeleteUnseen) && write.to.is_none();
    if !(unguarded || planted(Bug::OperationsForgotten)) {
        return Ok(write);
    }
    let stored = store.inner().contents(on, vec![write.id.clone()]).await?.pop();
    let guard = stored.map(|stored| stored.guard);
    if unguarded {
        write.expected = guard;
    } else if write.to.is_some() && write.expected == guard {
        let gone = ContentWrite { to: None, ..write.clone() };
        store.inner().write_contents(on, [gone].into()).await?;
        write.expected = None;
    }
    Ok(write)
}

/// Returns the number of a lease as the engine sees it.
pub(crate) fn lease_number(name: &str, number: Option<u64>) -> Option<u64> {
    number.map(|number| if planted(Bug::SameLock) && name.starts_with("lock") { 1 } else { number })
}
