//! Planted bugs at the boundary of the store: they change the requests of the engine, or the
//! responses it sees. Without a planted bug everything passes unchanged.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leftfold::content::{ContentGuard, ContentWrite, Contents as _};
use leftfold::documents::{Commit, CommitOutcome, DocumentWrite, Header};
use leftfold::log::{Entry, LogPage};
use leftfold::mutant;
use leftfold::react::{ExternalCollection, Registered, Task, TaskChange};
use leftfold::sequence::{Settled, Settlement, StreamChange, StreamState, Totals};
use leftfold::{
    AppendError, Collection, Documents, Error, EventId, Kind, Mark, Position, Result, Revision, Sequences,
    StreamId,
};

use crate::reactions::ledger::Wrote;
use crate::store::SimStore;

/// Returns the commit to send.
pub(super) async fn commit(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    mutant!(SkipGuard => return unguarded(store, commit).await);
    mutant!(GuardByLease => return guarded_by_lease(store, commit).await);
    mutant!(GuardByMark => return guarded_by_mark(store, commit).await);
    mutant!(OverwriteAfterConflict => return overwriting(store, commit).await);
    mutant!(DropTombstones => return Ok(without_tombstones(commit)));
    mutant!(StreamsLast => return Ok(with_streams_last(commit)));
    Ok(Arc::clone(commit))
}

/// Returns the outcome of a commit as the engine sees it.
pub(super) async fn outcome(
    store: &SimStore,
    commit: &Commit,
    outcome: CommitOutcome,
) -> Result<CommitOutcome> {
    mutant!(CheckpointIsProof => return proven_by_checkpoint(store, commit, outcome).await);
    Ok(outcome)
}

/// Returns the response to a commit with an unknown outcome.
pub(super) fn unknown_commit() -> CommitOutcome {
    mutant!(UnknownIsSuccess => return CommitOutcome::Applied);
    CommitOutcome::Unknown(Error::new(Kind::Unknown, "commit: lost the connection"))
}

/// Returns the response to an append with an unknown outcome.
pub(super) fn unknown_append(stream: &StreamId) -> AppendError {
    mutant!(UnknownIsFailure => return rejected_append(stream));
    AppendError::Store(Error::new(Kind::Unknown, "append: lost the connection"))
}

/// Returns the response to a settlement with an unknown outcome.
pub(super) fn unknown_settlement() -> Settled {
    mutant!(UnknownIsSettled => return Settled::Applied { before: Position(0) });
    Settled::Unknown(Error::new(Kind::Unknown, "settle: lost the connection"))
}

/// Returns the settlement to send.
pub(super) async fn settlement(store: &SimStore, settlement: &Arc<Settlement>) -> Result<Arc<Settlement>> {
    mutant!(SettleUnseen => return each_step(store, settlement, settle_unseen).await);
    mutant!(WaitNotWritten => return each_step(store, settlement, keep_waiting_state).await);
    mutant!(ReleaseLost => return each_step(store, settlement, lose_released).await);
    mutant!(ReleaseTwice => return each_step(store, settlement, |step, _| step.unhold.clear()).await);
    mutant!(HoldNothing => return each_step(store, settlement, |step, _| step.hold.clear()).await);
    mutant!(Boundless => return Ok(boundless(settlement)));
    mutant!(ConflictDropped => return Ok(without_conflicts(settlement)));
    Ok(Arc::clone(settlement))
}

/// Returns a page as the engine sees it.
pub(super) fn page(mut page: LogPage) -> LogPage {
    mutant!(WrongPage => page.through.0 += u64::from(page.more));
    page
}

/// Returns the entries to append.
pub(super) fn entries(store: &SimStore, mut entries: Vec<Entry>) -> Vec<Entry> {
    mutant!(ForgetIds => for entry in &mut entries { make_id_unique(store, entry) });
    entries
}

/// Returns the change of a task to send, alone or in a transaction.
pub(super) fn task(change: TaskChange, before: Option<&Task>, how: Wrote) -> TaskChange {
    match how {
        Wrote::Alone => mutant!(SaveUnseen => return unguarded_change(change, before)),
        Wrote::InTransaction => mutant!(CompleteUnseen => return unguarded_change(change, before)),
    }
    change
}

/// Returns the reaction to register.
pub(super) fn registered(mut reaction: Registered) -> Registered {
    mutant!(PauseNothing => reaction.paused = false);
    reaction
}

/// Returns the write of a document without events to send.
pub(super) async fn content(
    store: &SimStore,
    on: &ExternalCollection,
    write: ContentWrite,
) -> Result<ContentWrite> {
    mutant!(ContentUnguarded => return unguarded_content(store, on, write).await);
    mutant!(DeleteUnseen => return unguarded_deletion(store, on, write).await);
    mutant!(OperationsForgotten => return without_operations(store, on, write).await);
    Ok(write)
}

/// Returns the number of a lease as the engine sees it.
pub(super) fn lease_number(name: &str, number: Option<u64>) -> Option<u64> {
    mutant!(SameLock => return number.map(|number| if name.starts_with("lock") { 1 } else { number }));
    number
}

/// Writes a commit without a transaction, with the checkpoint before the documents.
pub(super) async fn checkpoint_first(store: &SimStore, commit: &Commit) -> Result<CommitOutcome> {
    let outcome = store.write_checkpoint(commit).await?;
    if !matches!(outcome, CommitOutcome::Applied) {
        return Ok(outcome);
    }
    store.takes(Duration::from_millis(1)).await;
    store.write_documents(commit).await
}

/// Writes a commit after its response.
pub(super) fn acknowledged_early(store: &SimStore, commit: Arc<Commit>) -> CommitOutcome {
    store.write_within(Duration::from_millis(5), commit);
    CommitOutcome::Applied
}

/// Returns the stored state of a document that is to be written.
async fn stored(store: &SimStore, on: &Collection, write: &DocumentWrite) -> Result<Option<Header>> {
    let stored = store.inner().load(on, vec![write.record.id.clone()]).await?.pop();
    Ok(stored.map(|record| record.header))
}

async fn unguarded(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    let mut commit = (**commit).clone();
    if let Some(advance) = &mut commit.advance {
        advance.from = store.inner().checkpoint(&advance.projection).await?.mark;
    }
    overwriting(store, &Arc::new(commit)).await
}

async fn guarded_by_lease(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    let has_lease = {
        let holders = store.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let projection = commit.advance.as_ref().map(|advance| &advance.projection);
        projection.is_none_or(|projection| holders.get(projection).is_none_or(|holder| *holder == store.name))
    };
    if has_lease { unguarded(store, commit).await } else { Ok(Arc::clone(commit)) }
}

async fn guarded_by_mark(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    let mut commit = (**commit).clone();
    for changes in &mut commit.changes {
        for write in &mut changes.writes {
            let stored = stored(store, &changes.collection, write).await?;
            let mark = |header: &Option<Header>| header.as_ref().map(|header| header.mark.clone());
            if stored.is_some() && mark(&stored) == mark(&write.expected) {
                write.expected = stored;
            }
        }
    }
    Ok(Arc::new(commit))
}

async fn overwriting(store: &SimStore, commit: &Arc<Commit>) -> Result<Arc<Commit>> {
    let mut commit = (**commit).clone();
    for changes in &mut commit.changes {
        for write in &mut changes.writes {
            write.expected = stored(store, &changes.collection, write).await?;
        }
    }
    Ok(Arc::new(commit))
}

fn without_tombstones(commit: &Commit) -> Arc<Commit> {
    let mut commit = commit.clone();
    let writes = commit.changes.iter_mut().flat_map(|changes| &mut changes.writes);
    for write in writes.filter(|write| write.record.body.is_none()) {
        write.record.header.mark = Mark::default();
    }
    Arc::new(commit)
}

fn with_streams_last(commit: &Commit) -> Arc<Commit> {
    let mut commit = commit.clone();
    commit.changes.reverse();
    Arc::new(commit)
}

async fn proven_by_checkpoint(
    store: &SimStore,
    commit: &Commit,
    outcome: CommitOutcome,
) -> Result<CommitOutcome> {
    let Some(advance) = &commit.advance else { return Ok(outcome) };
    let at = store.inner().checkpoint(&advance.projection).await?.mark;
    Ok(if at == advance.to.mark { CommitOutcome::Applied } else { outcome })
}

fn rejected_append(stream: &StreamId) -> AppendError {
    AppendError::WrongRevision { stream: stream.clone(), expected: Revision(0), actual: Revision(0) }
}

/// Returns the settlement with each step changed. `change` gets the stored state of the stream.
async fn each_step(
    store: &SimStore,
    settlement: &Settlement,
    change: impl Fn(&mut StreamChange, &StreamState),
) -> Result<Arc<Settlement>> {
    let mut settlement = settlement.clone();
    for step in &mut settlement.steps {
        let mut survey = store.inner().survey(vec![step.stream.clone()]).await?;
        change(step, &survey.streams.remove(&step.stream).unwrap_or_default());
    }
    Ok(Arc::new(settlement))
}

fn settle_unseen(step: &mut StreamChange, stored: &StreamState) {
    step.append.retain(|(revision, _)| *revision > stored.last);
    step.seen = stored.seen();
}

fn keep_waiting_state(step: &mut StreamChange, stored: &StreamState) {
    step.waiting.clone_from(&stored.waiting);
}

fn lose_released(step: &mut StreamChange, _: &StreamState) {
    step.append.retain(|(revision, _)| !step.unhold.contains(revision));
}

fn boundless(settlement: &Settlement) -> Arc<Settlement> {
    let bounds = Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX };
    Arc::new(Settlement { bounds, ..settlement.clone() })
}

fn without_conflicts(settlement: &Settlement) -> Arc<Settlement> {
    Arc::new(Settlement { conflicts: Vec::new(), ..settlement.clone() })
}

fn make_id_unique(store: &SimStore, entry: &mut Entry) {
    let id = format!("{}-{}", entry.id, store.shared.faults.dice().next());
    if let Ok(id) = EventId::new(id) {
        entry.id = id;
    }
}

fn unguarded_change(change: TaskChange, before: Option<&Task>) -> TaskChange {
    match (change, before) {
        (TaskChange::Update(_, task), Some(before)) => TaskChange::Update(before.version, task),
        (change, _) => change,
    }
}

async fn stored_guard(
    store: &SimStore,
    on: &ExternalCollection,
    write: &ContentWrite,
) -> Result<Option<ContentGuard>> {
    let stored = store.inner().contents(on, vec![write.id.clone()]).await?.pop();
    Ok(stored.map(|stored| stored.guard))
}

async fn unguarded_content(
    store: &SimStore,
    on: &ExternalCollection,
    write: ContentWrite,
) -> Result<ContentWrite> {
    let expected = stored_guard(store, on, &write).await?;
    Ok(ContentWrite { expected, ..write })
}

async fn unguarded_deletion(
    store: &SimStore,
    on: &ExternalCollection,
    write: ContentWrite,
) -> Result<ContentWrite> {
    match write.to {
        None => unguarded_content(store, on, write).await,
        Some(_) => Ok(write),
    }
}

/// Deletes a document before it is written. Its remembered operations are lost with it.
async fn without_operations(
    store: &SimStore,
    on: &ExternalCollection,
    write: ContentWrite,
) -> Result<ContentWrite> {
    if write.to.is_none() || write.expected != stored_guard(store, on, &write).await? {
        return Ok(write);
    }
    let deletion = ContentWrite { to: None, ..write.clone() };
    store.inner().write_contents(on, [deletion].into()).await?;
    Ok(ContentWrite { expected: None, ..write })
}
