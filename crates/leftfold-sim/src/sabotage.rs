//! Planted bugs that show at the store's ports: what a wrong engine would send to its store, or make of its answers.
//! Without a planted bug, everything passes as it is.

use std::sync::{Arc, PoisonError};

use leftfold::content::{Contents as _, Write};
use leftfold::documents::{Commit, Outcome};
use leftfold::log::{Entry, Page};
use leftfold::planted::{Bug, planted};
use leftfold::react::{Change, Plain, Registered, Task};
use leftfold::sequence::{Settled, Settlement, Totals};
use leftfold::{
    AppendError, Documents, Error, EventId, Kind, Position, Result, Revision, Sequences, StreamId,
};

use crate::reactions::ledger::Wrote;
use crate::store::SimStore;

/// A commit as it is sent.
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

/// What is made of a commit's outcome.
pub(crate) async fn outcome(store: &SimStore, commit: &Commit, outcome: Outcome) -> Result<Outcome> {
    let Some(advance) = commit.advance.as_ref().filter(|_| planted(Bug::CheckpointIsProof)) else {
        return Ok(outcome);
    };
    let at = store.shared.inner.checkpoint(&advance.projection).await?.mark;
    Ok(if at == advance.to.mark { Outcome::Applied } else { outcome })
}

/// What is made of a commit of which nothing is known.
pub(crate) fn unknown_commit() -> Outcome {
    if planted(Bug::UnknownIsSuccess) {
        return Outcome::Applied;
    }
    Outcome::Unknown(Error::new(Kind::Unknown, "commit: lost the connection"))
}

/// What is made of an append of which nothing is known.
pub(crate) fn unknown_append(stream: &StreamId) -> AppendError {
    if planted(Bug::UnknownIsFailure) {
        let (expected, actual) = (Revision(0), Revision(0));
        return AppendError::WrongRevision { stream: stream.clone(), expected, actual };
    }
    AppendError::Store(Error::new(Kind::Unknown, "append: lost the connection"))
}

/// What is made of a settlement of which nothing is known.
pub(crate) fn unknown_settlement() -> Settled {
    if planted(Bug::UnknownIsSettled) {
        return Settled::Applied { before: Position(0) };
    }
    Settled::Unknown(Error::new(Kind::Unknown, "settle: lost the connection"))
}

/// A settlement as it is sent.
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

/// A page as it is read.
pub(crate) fn page(mut page: Page) -> Page {
    if planted(Bug::WrongPage) && page.more {
        page.through.0 += 1;
    }
    page
}

/// What is appended.
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

/// A change of a task as it is sent, alone or in a transaction.
pub(crate) fn task(change: Change, before: Option<&Task>, how: Wrote) -> Change {
    let unseen = match how {
        Wrote::Alone => planted(Bug::SaveUnseen),
        Wrote::InTransaction => planted(Bug::CompleteUnseen),
    };
    match (change, before) {
        (Change::Update(_, task), Some(before)) if unseen => Change::Update(before.version, task),
        (change, _) => change,
    }
}

/// A reaction as it is registered.
pub(crate) fn registered(mut reaction: Registered) -> Registered {
    if planted(Bug::PauseNothing) {
        reaction.paused = false;
    }
    reaction
}

/// A write of a document without events as it is sent.
pub(crate) async fn content(store: &SimStore, on: &Plain, mut write: Write) -> Result<Write> {
    let unguarded = planted(Bug::ContentUnguarded) || planted(Bug::DeleteUnseen) && write.to.is_none();
    if !(unguarded || planted(Bug::OperationsForgotten)) {
        return Ok(write);
    }
    let stored = store.inner().contents(on, vec![write.id.clone()]).await?.pop();
    let guard = stored.map(|stored| stored.guard);
    if unguarded {
        write.expected = guard;
    } else if write.to.is_some() && write.expected == guard {
        let gone = Write { to: None, ..write.clone() };
        store.inner().write_contents(on, [gone].into()).await?;
        write.expected = None;
    }
    Ok(write)
}

/// The number of a lease.
pub(crate) fn lease_number(name: &str, number: Option<u64>) -> Option<u64> {
    number.map(|number| if planted(Bug::SameLock) && name.starts_with("lock") { 1 } else { number })
}
