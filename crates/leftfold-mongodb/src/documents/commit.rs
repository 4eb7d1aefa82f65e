//! Commits: guarded writes in bulk.
//!
//! With transactions, a commit is atomic: it moves the checkpoint from its expected mark, then
//! writes every document under its own guard, or writes nothing. Without transactions, it writes
//! the documents first, each by itself, and the checkpoint last.
//!
//! A bulk write reports how many guards held, not which ones. If some failed, one query per
//! collection finds them. It compares headers, or, without transactions, the number that each write
//! leaves in `_fold.by`.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBson, RawDocumentBuf};
use leftfold::documents::{
    Advance, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentWrite, Header,
};
use leftfold::{Backoff, Collection, DocumentId, Env as _, Kind, Result, System};
use mongodb::ClientSession;
use tokio::time::sleep;

use crate::connection::bulk::{Statements, Verb, duplicates, matched};
use crate::connection::{Base, Ended, Step, Work, with_timeout};
use crate::documents::record;
use crate::error::{Failure, is_duplicate};
use crate::schema::records;

/// The writes to one collection, ready to be sent.
struct Bulk {
    name: String,
    inserts: Vec<RawDocumentBuf>,
    updates: Vec<Statements>,
}

/// The result of the guards in a transaction.
enum Guards {
    Held,
    Checkpoint,
    Documents,
}

impl Base {
    /// Writes a commit, and publishes its mark.
    pub(super) async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        let failed = |failure: Failure| failure.to_error("commit documents to", &self.place);
        let given = Arc::clone(&commit);
        let commit = with_timeout(self.named_all(commit)).await.map_err(failed)?;
        let mut outcome = self.write_commit(&commit).await.map_err(failed)?;
        if let CommitOutcome::Conflict(conflict) = &mut outcome {
            // Report collections under the names that the caller used.
            for (collection, _) in &mut conflict.documents {
                let mut names = given.changes.iter().zip(&commit.changes);
                if let Some((given, _)) = names.find(|(_, named)| named.collection == *collection) {
                    *collection = given.collection.clone();
                }
            }
        }
        if let (CommitOutcome::Applied, Some(advance)) = (&outcome, &commit.advance) {
            self.board.moved(&advance.projection.stored(0), &advance.to.mark);
        }
        Ok(outcome)
    }

    /// Writes a commit. `Err` means that nothing was written.
    async fn write_commit(&self, commit: &Commit) -> Result<CommitOutcome, Failure> {
        let by = (!self.has_transactions()).then(|| (System.random() >> 1).cast_signed());
        let filled = commit.changes.iter().filter(|changes| !changes.writes.is_empty());
        let bulks: Vec<_> = filled.map(|changes| bulk(changes, by)).collect::<Result<_, _>>()?;
        match by {
            None => self.commit_as_one(commit, &bulks).await,
            Some(by) => self.commit_one_by_one(commit, &bulks, by).await,
        }
    }

    async fn commit_as_one(&self, commit: &Commit, bulks: &[Bulk]) -> Result<CommitOutcome, Failure> {
        let backoff = Backoff::default().first(Duration::from_millis(5)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(12).delays(System.random());
        loop {
            let guards = match self
                .transact(WriteAll { base: self, advance: commit.advance.as_ref(), bulks })
                .await?
            {
                Ended::Committed(_) => return Ok(CommitOutcome::Applied),
                Ended::Unknown(failure) => {
                    return Ok(CommitOutcome::Unknown(failure.to_error("commit documents to", &self.place)));
                }
                Ended::CalledOff(guards) => guards,
            };
            let conflict = self.conflict(commit, &guards).await?;
            if conflict.checkpoint || !conflict.documents.is_empty() {
                return Ok(CommitOutcome::Conflict(conflict));
            }
            // A transaction sees every write; a read sees only majority-committed ones. They agree
            // soon.
            let Some(delay) = delays.next() else {
                let report = "another writer has changed documents, and a majority of servers does not have the change yet";
                return Err(Failure::new(Kind::Unavailable, "check the servers, and try again", report));
            };
            sleep(delay).await;
        }
    }

    /// Finds the conflict that made guards fail, as far as reads show it.
    async fn conflict(&self, commit: &Commit, guards: &Guards) -> Result<CommitConflict, Failure> {
        if let (Guards::Checkpoint, Some(advance)) = (guards, &commit.advance) {
            let checkpoint = self.checkpoint(&advance.projection).await?.mark != advance.from;
            return Ok(CommitConflict { checkpoint, documents: Vec::new() });
        }
        let differs = |write: &DocumentWrite, stored: Option<&(Header, _)>| {
            !write.holds(stored.map(|(header, _)| header))
        };
        Ok(CommitConflict { checkpoint: false, documents: self.differing(&commit.changes, differs).await? })
    }

    /// Writes each document by itself, one collection after the other. Then writes the checkpoint
    /// if all guards held.
    async fn commit_one_by_one(
        &self,
        commit: &Commit,
        bulks: &[Bulk],
        by: i64,
    ) -> Result<CommitOutcome, Failure> {
        let mut sent = false;
        match with_timeout(self.write_one_by_one(commit, bulks, by, &mut sent)).await {
            Ok(None) => Ok(CommitOutcome::Applied),
            Ok(Some(conflict)) => Ok(CommitOutcome::Conflict(conflict)),
            Err(failure) if sent => {
                Ok(CommitOutcome::Unknown(failure.unknown().to_error("commit documents to", &self.place)))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn write_one_by_one(
        &self,
        commit: &Commit,
        bulks: &[Bulk],
        by: i64,
        sent: &mut bool,
    ) -> Result<Option<CommitConflict>, Failure> {
        let filled = commit.changes.iter().filter(|changes| !changes.writes.is_empty());
        for (bulk, changes) in bulks.iter().zip(filled) {
            *sent = true;
            let mut all = true;
            if !bulk.inserts.is_empty() {
                let records = self.db.collection::<RawDocumentBuf>(&bulk.name);
                match records.insert_many(&bulk.inserts).ordered(false).await {
                    Ok(_) => {}
                    Err(error) if duplicates(&error).is_some() => all = false,
                    Err(error) => return Err(error.into()),
                }
            }
            point!("documents-inserted");
            for updates in &bulk.updates {
                let reply =
                    self.db.run_raw_command(updates.durable_command(Verb::Update, &bulk.name)).await?;
                all &= matched(&reply)? == updates.count();
            }
            if !all {
                let changes = std::slice::from_ref(changes);
                let documents = self
                    .differing(changes, |_, stored| stored.is_none_or(|(_, stored)| *stored != Some(by)))
                    .await?;
                if !documents.is_empty() {
                    return Ok(Some(CommitConflict { checkpoint: false, documents }));
                }
            }
        }
        point!("documents-written");
        if let Some(advance) = &commit.advance {
            *sent = true;
            if !self.advance(advance, None).await? {
                return Ok(Some(CommitConflict { checkpoint: true, documents: Vec::new() }));
            }
        }
        Ok(None)
    }

    /// Returns the documents that differ from the expectation.
    async fn differing(
        &self,
        changes: &[CollectionWrites],
        differs: impl Fn(&DocumentWrite, Option<&(Header, Option<i64>)>) -> bool,
    ) -> Result<Vec<(Collection, DocumentId)>, Failure> {
        let mut differing = Vec::new();
        for CollectionWrites { collection, writes } in changes {
            if writes.is_empty() {
                continue;
            }
            let stored = self.headers(collection, writes).await?;
            let others = writes.iter().filter(|write| differs(write, stored.get(&write.record.id)));
            differing.extend(others.map(|write| (collection.clone(), write.record.id.clone())));
        }
        Ok(differing)
    }
}

/// A whole commit, as the work of a transaction.
struct WriteAll<'a> {
    base: &'a Base,
    advance: Option<&'a Advance>,
    bulks: &'a [Bulk],
}

impl Work for WriteAll<'_> {
    type Answer = Guards;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<Guards>, Failure> {
        let Self { base, advance, bulks } = *self;
        if let Some(advance) = advance
            && !base.advance(advance, Some(&mut *session)).await?
        {
            return Ok(Step::CallOff(Guards::Checkpoint));
        }
        point!("checkpoint-moved");
        for bulk in bulks {
            if !bulk.inserts.is_empty() {
                let records = base.db.collection::<RawDocumentBuf>(&bulk.name);
                match records.insert_many(&bulk.inserts).session(&mut *session).await {
                    Ok(_) => {}
                    Err(error) if is_duplicate(&error) => return Ok(Step::CallOff(Guards::Documents)),
                    Err(error) => return Err(error.into()),
                }
            }
            point!("documents-inserted");
            for updates in &bulk.updates {
                let reply = base
                    .db
                    .run_raw_command(updates.command(Verb::Update, &bulk.name))
                    .session(&mut *session)
                    .await?;
                if matched(&reply)? < updates.count() {
                    return Ok(Step::CallOff(Guards::Documents));
                }
            }
        }
        point!("documents-written");
        Ok(Step::Keep(Guards::Held))
    }
}

fn bulk(changes: &CollectionWrites, by: Option<i64>) -> Result<Bulk, Failure> {
    let mut bulk = Bulk { name: records(&changes.collection), inserts: Vec::new(), updates: Vec::new() };
    for DocumentWrite { expected, record } in &changes.writes {
        let document = record::encode(record, by)?;
        let Some(expected) = expected else {
            bulk.inserts.push(document);
            continue;
        };
        let (mark, parked) = record::guard(expected)?;
        let mut guard = RawDocumentBuf::new();
        guard.append(cstr!("_id"), record.id.as_str());
        guard.append(cstr!("_fold.mark"), mark);
        // A query for null matches a missing field.
        guard.append(cstr!("_fold.parked"), parked.map_or(RawBson::Null, RawBson::String));
        let mut update = RawDocumentBuf::new();
        update.append(cstr!("q"), guard);
        update.append(cstr!("u"), document);
        Statements::push(&mut bulk.updates, update);
    }
    Ok(bulk)
}
