//! Transactions of handlers: each completes its task and records an effect.

use leftfold::react::{Context, FoundDocument, NotCurrent, ReactionStore as _, TaskChange};
use leftfold::{Error, Event, Result};
use serde::de::DeserializeOwned;
use std::time::Duration;

use super::handle::SimStore;
use super::tasks::readable;
use crate::reactions::ledger::{Effect, Sometimes, Wrote};

impl SimStore {
    /// Completes the task of a run and records its effect in one transaction of the handler. Like
    /// drivers do, it retries a transaction that conflicts with another write.
    async fn complete_with<D, E: From<Error>>(
        &self,
        ctx: &Context<D>,
        effect: impl Fn(Option<FoundDocument>) -> Result<Effect, E>,
    ) -> Result<(), E> {
        let transaction = async {
            loop {
                let effect = effect(self.document_of(ctx).await?)?;
                let task = self.inner().load_tasks(vec![ctx.task().key.clone()]).await?.pop();
                let task = task.ok_or_else(|| ctx.lost())?;
                let seen = task.version;
                let done = ctx.complete(task).ok_or_else(|| ctx.lost())?;
                self.takes(Duration::from_millis(5)).await;
                let commit = self.clone().commit_with(TaskChange::Update(seen, done), effect);
                match Box::pin(self.written("transaction", commit)).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => {
                        self.shared.ledger.happened(Sometimes::Unknown);
                        return Err(error.into());
                    }
                }
            }
        };
        self.answer("transaction", Box::pin(transaction)).await
    }

    /// Commits such a transaction if the task has not changed. Returns whether it committed.
    async fn commit_with(self, change: TaskChange, effect: Effect) -> Result<bool> {
        let refused = self.clone().change_tasks(vec![change], Wrote::InTransaction).await?;
        if !refused.is_empty() {
            return Ok(false);
        }
        for violation in self.shared.ledger.effect(effect) {
            self.violated(violation);
        }
        Ok(true)
    }

    async fn document_of<D>(&self, ctx: &Context<D>) -> Result<Option<FoundDocument>> {
        let Some(on) = ctx.on() else { return Ok(None) };
        let found = readable(self.inner().current_documents(on, vec![ctx.id().clone()], usize::MAX).await?)?;
        Ok(found.documents.into_iter().next())
    }

    /// Records a document's state in the transaction that completes the task.
    pub(crate) async fn book<D: DeserializeOwned>(&self, ctx: &Context<D>) -> Result<(), NotCurrent> {
        let effect = |document| ctx.current(document).map(|_| Effect::of(ctx.task(), None));
        self.complete_with(ctx, effect).await
    }

    /// Records an event in the transaction that completes the task.
    pub(crate) async fn book_event(&self, ctx: &Context<Event>) -> Result<(), Error> {
        let revision = ctx.event().ok().map(|event| event.revision.0);
        self.complete_with(ctx, |_| Ok(Effect::of(ctx.task(), revision))).await
    }
}
