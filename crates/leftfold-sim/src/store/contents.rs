//! The simulated store's operations for documents without events.

use std::sync::Arc;
use std::time::Duration;

use leftfold::content::{ContentWrite, Contents, Operated, Operation, Stored, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Error, Kind, Result};
use tokio::time::sleep;

use super::calls::LATE;
use super::handle::SimStore;
use super::sabotage;
use crate::contents::ledger::CallId;
use crate::faults::Fault;

impl SimStore {
    /// Does each part of a request separately. The parts may run in any order, late, or not at all,
    /// and the outcome may be unknown to the caller.
    async fn piecemeal<P, T, F>(
        &self,
        name: &str,
        parts: Vec<P>,
        each: impl Fn(Self, Option<CallId>, P) -> F + Send + 'static,
    ) -> Result<Vec<T>>
    where
        P: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (ledger, dice) = (&self.shared.contents, self.shared.faults.dice());
        let call = ledger.current(&self.name);
        let any = |count: usize| usize::try_from(dice.below(count as u64)).unwrap_or(0);
        self.answer(name, async {
            let unknown = || {
                ledger.doubt(call);
                Err(Error::new(Kind::Unknown, format!("{name}: lost the connection")))
            };
            if self.strikes(Fault::LostUnknown) {
                return unknown();
            }
            let mut now: Vec<_> = parts.into_iter().enumerate().collect();
            let all = now.len();
            if all > 1 && self.strikes(Fault::Disorder) {
                dice.shuffle(&mut now);
            }
            let late = if self.strikes(Fault::Delayed) {
                now.split_off(0)
            } else if self.strikes(Fault::Trailing) {
                now.split_off(any(all))
            } else {
                if self.strikes(Fault::Halfway) {
                    now.truncate(any(all));
                }
                Vec::new()
            };
            let mut done = Vec::with_capacity(all);
            for (at, part) in now {
                done.push((at, each(self.clone(), call, part).await?));
            }
            if !late.is_empty() {
                let (store, after) = (self.clone(), dice.time(LATE));
                tokio::spawn(async move {
                    sleep(after).await;
                    for (_, part) in late {
                        store.shared.trace.note(|| format!("{}: late", store.name));
                        let _ = each(store.clone(), call, part).await;
                    }
                });
            }
            self.takes(Duration::from_millis(1)).await;
            if done.len() < all || self.strikes(Fault::AppliedUnknown) {
                return unknown();
            }
            done.sort_unstable_by_key(|(at, _)| *at);
            Ok(done.into_iter().map(|(_, done)| done).collect())
        })
        .await
    }

    /// Writes to the inner store and records the write in the ledger.
    async fn write_content(
        self,
        call: Option<CallId>,
        on: ExternalCollection,
        write: ContentWrite,
    ) -> Result<Wrote> {
        let write = sabotage::content(&self, &on, write).await?;
        let id = write.id.clone();
        let answer = one(self.inner().write_contents(&on, [write].into()).await?)?;
        if answer == Wrote::Written {
            self.see_content(call, &on, &id, None).await?;
        }
        Ok(answer)
    }

    /// Applies an operation in the inner store and records it in the ledger.
    async fn operate_on(
        self,
        call: Option<CallId>,
        on: ExternalCollection,
        (id, operation): (DocumentId, Operation),
    ) -> Result<Operated> {
        let operated = one(self.inner().operate(&on, [(id.clone(), operation.clone())].into()).await?)?;
        if operated == Operated::Applied {
            self.see_content(call, &on, &id, Some(&operation)).await?;
        }
        Ok(operated)
    }

    async fn see_content(
        &self,
        call: Option<CallId>,
        on: &ExternalCollection,
        id: &DocumentId,
        operation: Option<&Operation>,
    ) -> Result<()> {
        let body = self.inner().contents(on, vec![id.clone()]).await?.pop().map(|stored| stored.body);
        self.shared.trace.note(|| {
            let body = body.as_ref().map_or("gone", |body| body.as_str());
            let operation = operation.map(|operation| format!(" by operation {}", operation.id()));
            format!("{}: {id} is {body}{}", self.name, operation.unwrap_or_default())
        });
        let Some(call) = call else { return Ok(()) };
        for violation in self.shared.contents.saw(call, id, operation, body.as_ref()) {
            self.violated(violation);
        }
        Ok(())
    }
}

/// Returns the only response.
fn one<T>(mut answers: Vec<T>) -> Result<T> {
    answers.pop().ok_or_else(|| Error::new(Kind::Store, "the store did not respond"))
}

impl Contents for SimStore {
    async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        self.inner().prepare_contents(collection).await
    }

    /// Returns the current content, or that of the last read. The trait promises more, but no write
    /// may depend on it.
    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let ledger = &self.shared.contents;
        self.answer("read contents", async {
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let now = self.inner().contents(collection, vec![id.clone()]).await?.pop();
                let before = ledger.looked(collection, &id, now.clone());
                if self.strikes(Fault::Stale) {
                    ledger.misled(&self.name);
                    found.extend(before);
                } else {
                    found.extend(now);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        let on = collection.clone();
        let each = move |store: Self, call, write| store.write_content(call, on.clone(), write);
        self.piecemeal("write contents", writes.to_vec(), each).await
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        let on = collection.clone();
        let each = move |store: Self, call, operation| store.operate_on(call, on.clone(), operation);
        self.piecemeal("operate", operations.to_vec(), each).await
    }
}
