//! The ways in which a commit of documents is written.

use std::sync::Arc;
use std::time::Duration;

use leftfold::documents::{CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentWrite, Parked};
use leftfold::{Collection, Documents as _, Error, Kind, Result, mutant};
use tokio::time::sleep;

use super::calls::LATE;
use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;

impl SimStore {
    /// Writes to the inner store and lets the checker see it.
    pub(super) async fn write(&self, commit: &Arc<Commit>) -> Result<CommitOutcome> {
        let sent = sabotage::commit(self, commit).await?;
        let outcome = self.write_unseen(sent).await?;
        self.shared.trace.note(|| format!("{}: {}: {outcome:?}", self.name, in_short(commit)));
        self.check(commit).await?;
        Ok(outcome)
    }

    /// Writes after a random time below `most`.
    pub(super) fn write_within(&self, most: Duration, commit: Arc<Commit>) {
        let (store, late) = (self.clone(), self.shared.faults.dice().time(most));
        tokio::spawn(async move {
            sleep(late).await;
            let _ = store.write(&commit).await;
        });
    }

    async fn write_unseen(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        mutant!(CheckpointFirst => return sabotage::checkpoint_first(self, &commit).await);
        if self.shared.atomic {
            return self.shared.inner.commit(commit).await;
        }
        match self.write_documents(&commit).await? {
            CommitOutcome::Applied => self.write_checkpoint(&commit).await,
            outcome => Ok(outcome),
        }
    }

    /// Writes each document separately, collection by collection.
    pub(super) async fn write_documents(&self, commit: &Commit) -> Result<CommitOutcome> {
        let unknown = |message| Ok(CommitOutcome::Unknown(Error::new(Kind::Unknown, message)));
        let mut conflict = CommitConflict::default();
        for changes in &commit.changes {
            let mut writes: Vec<_> = changes.writes.iter().collect();
            if self.strikes(Fault::Disorder) {
                self.shared.faults.dice().shuffle(&mut writes);
            }
            for (at, write) in writes.iter().enumerate() {
                if self.strikes(Fault::Trailing) {
                    let rest = writes[at..].iter().copied().cloned().collect();
                    tokio::spawn(self.clone().write_late(changes.collection.clone(), rest));
                    return unknown("a part may still be written");
                }
                if self.strikes(Fault::Refused) {
                    conflict.documents.push((changes.collection.clone(), write.record.id.clone()));
                    continue;
                }
                let one = alone(&changes.collection, (*write).clone());
                if let CommitOutcome::Conflict(more) = self.shared.inner.commit(one).await? {
                    conflict.documents.extend(more.documents);
                }
                if self.strikes(Fault::Halfway) {
                    return unknown("a part may be written");
                }
                self.takes(Duration::from_micros(100)).await;
            }
            if !conflict.documents.is_empty() {
                return Ok(CommitOutcome::Conflict(conflict));
            }
        }
        Ok(CommitOutcome::Applied)
    }

    pub(super) async fn write_checkpoint(&self, commit: &Commit) -> Result<CommitOutcome> {
        let checkpoint = Commit { advance: commit.advance.clone(), changes: Vec::new() };
        self.shared.inner.commit(Arc::new(checkpoint)).await
    }

    /// Does the rest of a commit late, each write with its own delay.
    async fn write_late(self, collection: Collection, writes: Vec<DocumentWrite>) {
        for write in writes {
            self.takes(LATE / 4).await;
            let one = alone(&collection, write);
            let outcome = self.shared.inner.commit(Arc::clone(&one)).await;
            self.shared.trace.note(|| format!("{}: late, {}: {outcome:?}", self.name, in_short(&one)));
            let _ = self.check(&one).await;
        }
    }

    /// Has the checker look at the result of a commit.
    async fn check(&self, commit: &Commit) -> Result<()> {
        for violation in self.shared.checker.check_commit(&self.shared.inner, commit).await? {
            self.shared.trace.note(|| violation);
        }
        Ok(())
    }

    /// Returns a conflict as if others had changed the documents of a commit.
    pub(super) fn storm(&self, commit: &Commit) -> CommitOutcome {
        let writes = commit.changes.iter().flat_map(|changes| {
            changes.writes.iter().map(|write| (changes.collection.clone(), write.record.id.clone()))
        });
        let mut documents: Vec<_> = writes.collect();
        documents.retain(|_| self.shared.faults.dice().happens(500));
        CommitOutcome::Conflict(CommitConflict { checkpoint: documents.is_empty(), documents })
    }
}

/// Returns a commit of a single write.
fn alone(collection: &Collection, write: DocumentWrite) -> Arc<Commit> {
    let changes = CollectionWrites { collection: collection.clone(), writes: vec![write] };
    Arc::new(Commit { advance: None, changes: vec![changes] })
}

/// Formats a commit in one line.
fn in_short(commit: &Commit) -> String {
    let parked = |parked: &Parked| {
        let Parked { position, from, through, .. } = parked;
        let refold = if parked.anew { "to be refolded, " } else { "" };
        format!(" {refold}parked at {position} from {from} through {through}")
    };
    let write = |write: &DocumentWrite| {
        let was = write.expected.as_ref().map(|was| was.mark.to_string()).unwrap_or_default();
        let header = &write.record.header;
        let parked = header.parked.as_deref().map(parked).unwrap_or_default();
        format!(" {} {was}→{}{parked}", write.record.id, header.mark)
    };
    let changes = commit.changes.iter().map(|changes| {
        let writes: String = changes.writes.iter().map(write).collect();
        format!(", in {}:{writes}", changes.collection)
    });
    let changes: String = changes.collect();
    match &commit.advance {
        Some(advance) => {
            format!("{} from {} to {}{changes}", advance.projection, advance.from, advance.to.mark)
        }
        None => format!("mends{changes}"),
    }
}
