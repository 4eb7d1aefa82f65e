//! Guarded writes. Many writes need no more commands than one.
//!
//! The server names each refused insert. For updates it only returns the number that matched. If
//! some did not, one query finds them by the number that each call leaves in its documents. If
//! another writer has changed a document since, the outcome is unknown: the call fails, and a retry
//! finds out. Deletes leave no trace, so each goes in its own command.

use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use leftfold::content::{ContentGuard, ContentWrite, OperationIds, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Env as _, Kind, Result, System};

use super::read::key;
use super::record::{Body, binary, header, header_fields};
use super::together::Change;
use crate::connection::bulk::{Statements, Verb, duplicates, parse};
use crate::connection::{Base, with_timeout};
use crate::error::Failure;

/// Writes, ready to be sent, with their indexes in the request.
#[derive(Default)]
struct Batch<'w> {
    inserts: Vec<RawDocumentBuf>,
    inserted: Vec<usize>,
    updates: Vec<Update<'w>>,
    deletes: Vec<(usize, Statements)>,
}

/// The replacement of a document.
struct Update<'w> {
    place: usize,
    id: &'w DocumentId,
    key: RawBson,
    expected: &'w ContentGuard,
    guard: &'w ContentGuard,
    body: Body,
    by: i64,
}

impl Base {
    /// Runs an operation that writes. If the connection fails, the outcome is unknown.
    pub(super) async fn write_durably<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T> {
        // The driver's futures are large: without the box, the futures of all callers would be,
        // too.
        with_timeout(self.unblocked(Box::pin(work))).await.map_err(|failure| {
            let is_lost = matches!(failure.kind(), Kind::Unavailable | Kind::Contended);
            let failure = if is_lost { failure.unknown() } else { failure };
            failure.to_error(doing, &self.place)
        })
    }

    /// Makes the writes whose guards hold.
    pub(super) async fn write_contents(
        &self,
        plain: &ExternalCollection,
        writes: &[ContentWrite],
    ) -> Result<Vec<Wrote>, Failure> {
        let by = number();
        let batch = pack(writes, by)?;
        // `Some` holds whether the write was made; `None` means that it is not known yet.
        let mut written = vec![None; writes.len()];
        self.insert_contents(plain, &batch, &mut written).await?;
        let held = if self.change_together(plain, header_fields(), &batch.updates).await? {
            batch.updates.len()
        } else {
            let mut commands = Vec::new();
            for update in &batch.updates {
                Statements::push(&mut commands, update.statement());
            }
            self.send_statements(plain, Verb::Update, &commands).await?
        };
        for (place, delete) in &batch.deletes {
            let held = self.send_statements(plain, Verb::Delete, std::slice::from_ref(delete)).await?;
            written[*place] = Some(held == 1);
        }
        if held == batch.updates.len() {
            batch.updates.iter().for_each(|update| written[update.place] = Some(true));
        }
        let open = writes.iter().zip(&written).filter(|(_, written)| **written != Some(true));
        let open: Vec<_> = open.map(|(write, _)| &write.id).collect();
        if open.is_empty() {
            return Ok(vec![Wrote::Written; writes.len()]);
        }
        let found = self.kept(plain, open.into_iter()).await?;
        let mut ours = 0;
        let mut wrote = Vec::with_capacity(writes.len());
        for (write, written) in writes.iter().zip(written) {
            let kept = found.get(&write.id);
            let is_written = written.unwrap_or_else(|| {
                if write.expected.is_none() {
                    // The write expects no document and writes none: there was nothing to do.
                    return kept.is_none();
                }
                let is_ours = kept.is_some_and(|kept| kept.by == by);
                ours += usize::from(is_ours);
                is_ours
            });
            wrote.push(if is_written {
                Wrote::Written
            } else {
                Wrote::Refused(kept.map(|kept| kept.stored.clone()))
            });
        }
        if held < batch.updates.len() && ours < held {
            let report = "another writer changed the same documents right after this write";
            return Err(Failure::new(Kind::Unknown, "repeat the same call, which is harmless", report));
        }
        Ok(wrote)
    }

    async fn insert_contents(
        &self,
        plain: &ExternalCollection,
        batch: &Batch<'_>,
        written: &mut [Option<bool>],
    ) -> Result<(), Failure> {
        if batch.inserts.is_empty() {
            return Ok(());
        }
        batch.inserted.iter().for_each(|place| written[*place] = Some(true));
        let documents = self.db.collection::<RawDocumentBuf>(plain.as_str());
        if let Err(error) = documents.insert_many(&batch.inserts).ordered(false).await {
            let Some(there) = duplicates(&error) else { return Err(error.into()) };
            for place in there.into_iter().filter_map(|there| batch.inserted.get(there)) {
                written[*place] = Some(false);
            }
        }
        Ok(())
    }

    /// Sends the commands and returns the number of guards that held.
    pub(super) async fn send_statements(
        &self,
        plain: &ExternalCollection,
        verb: Verb,
        commands: &[Statements],
    ) -> Result<usize, Failure> {
        let mut held = 0;
        for statements in commands {
            let reply =
                parse(&self.db.run_raw_command(statements.durable_command(verb, plain.as_str())).await?)?;
            if let Some((_, failure)) = reply.refused.into_iter().next() {
                return Err(failure);
            }
            held += reply.matched;
        }
        Ok(held)
    }
}

impl Change for Update<'_> {
    fn id(&self) -> &DocumentId {
        self.id
    }

    fn key(&self) -> &RawBson {
        &self.key
    }

    fn update(&self, found: &RawDocument) -> Result<Option<RawDocumentBuf>, Failure> {
        match header(found)? {
            Some((guard, operations)) if guard == *self.expected => {
                Ok(Some(self.body.encode(&self.key, self.guard, self.by, &operations)?))
            }
            _ => Ok(None),
        }
    }
}

impl Update<'_> {
    /// Returns the update as a statement with its guard.
    fn statement(&self) -> RawDocumentBuf {
        let mut update = RawDocumentBuf::new();
        update.append(cstr!("q"), guarded(&self.key, self.expected));
        update.append(cstr!("u"), self.body.update(self.guard, self.by));
        // Without the hint, the server's query planning takes as long as the update itself.
        update.append(cstr!("hint"), rawdoc! { "_id": 1 });
        update
    }
}

fn pack(writes: &[ContentWrite], by: i64) -> Result<Batch<'_>, Failure> {
    let mut batch = Batch::default();
    for (place, ContentWrite { id, expected, to }) in writes.iter().enumerate() {
        let Some(key) = key(id) else {
            if expected.is_some() || to.is_none() {
                // The document does not exist.
                continue;
            }
            let advice = "give it another id; a text that begins with { or \" counts as JSON";
            let report = format!("no document can have the id {id}");
            return Err(Failure::new(Kind::Invalid, advice, report));
        };
        match (expected, to) {
            (None, Some((guard, body))) => {
                batch.inserts.push(Body::of(body)?.encode(&key, guard, by, &OperationIds::default())?);
                batch.inserted.push(place);
            }
            (Some(expected), Some((guard, body))) => {
                let body = Body::of(body)?;
                batch.updates.push(Update { place, id, key, expected, guard, body, by });
            }
            (Some(expected), None) => {
                let mut deletes = Vec::new();
                Statements::push(&mut deletes, rawdoc! { "q": guarded(&key, expected), "limit": 1 });
                batch.deletes.extend(deletes.into_iter().map(|delete| (place, delete)));
            }
            (None, None) => {}
        }
    }
    Ok(batch)
}

/// Returns the filter for a document with this guard.
pub(super) fn guarded(key: &RawBson, guard: &ContentGuard) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("_id"), rawdoc! { "$eq": key.clone() });
    filter.append(cstr!("_content.guard"), binary(guard));
    filter
}

/// Returns a random number, unique per call.
fn number() -> i64 {
    System.random().cast_signed()
}
