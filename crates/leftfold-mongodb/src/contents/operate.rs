//! Operations: one update each, in as many commands for many as for one.
//!
//! A command tells how many were applied. If not all were, one query tells of each why, by the same rules as in memory. An operation whose guard is still there was
//! applied by this call. Of one that the document remembers under another guard nobody can tell whether it was this call: it counts as applied before. What the
//! server can't do by itself, as the body is kept as text, is done by reading and writing under guard.

use std::collections::HashSet;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBson, RawDocumentBuf};
use leftfold::content::{Guard, Operated, Operation};
use leftfold::react::Plain;
use leftfold::{Backoff, DocumentId, Env as _, Kind, System};
use tokio::time::sleep;

use super::direct::{self, Increase};
use super::kept::{Body, Kept};
use super::key;
use super::write::guarded;
use crate::Base;
use crate::bulk::{Statements, Verb, said};
use crate::error::Failure;

impl Base {
    /// Applies those that can be applied.
    pub(super) async fn operate(
        &self,
        plain: &Plain,
        operations: &[(DocumentId, Operation)],
    ) -> Result<Vec<Operated>, Failure> {
        let guards: Vec<_> = operations.iter().map(|_| Guard::once(System.random())).collect();
        if self.apply_together(plain, operations, &guards).await? {
            return Ok(vec![Operated::Applied; operations.len()]);
        }
        let (mut commands, mut sent) = (Vec::new(), HashSet::new());
        for (place, ((id, operation), guard)) in operations.iter().zip(&guards).enumerate() {
            if let Some(key) = key(id)
                && let Some(statement) = direct::statement(&key, operation, guard)?
            {
                Statements::push(&mut commands, statement);
                sent.insert(place);
            }
        }
        let are_applied = self.send_operations(plain, &commands).await? == sent.len();
        if are_applied && sent.len() == operations.len() {
            return Ok(vec![Operated::Applied; operations.len()]);
        }
        let found = self.kept(plain, operations.iter().map(|(id, _)| id)).await?;
        let mut changed = HashSet::new();
        let mut operated = Vec::with_capacity(operations.len());
        for (place, ((id, operation), guard)) in operations.iter().zip(&guards).enumerate() {
            let kept = found.get(id);
            let is_ours = are_applied || kept.is_some_and(|kept| kept.stored.guard == *guard);
            operated.push(if sent.contains(&place) && is_ours {
                Operated::Applied
            } else {
                // What was found is no longer what is there, if an operation before this one had to change it.
                let is_stale = changed.contains(id);
                match kept {
                    None if !is_stale => Operated::Missing,
                    Some(kept) if !is_stale && let Err(why) = kept.stored.clone().operated(operation, 0) => {
                        why
                    }
                    _ => {
                        changed.insert(id);
                        self.operate_under_guard(plain, id, operation).await?
                    }
                }
            });
        }
        Ok(operated)
    }

    /// Applies many operations together, if nothing speaks against any. Answers whether it did.
    async fn apply_together(
        &self,
        plain: &Plain,
        operations: &[(DocumentId, Operation)],
        guards: &[Guard],
    ) -> Result<bool, Failure> {
        let increases = operations.iter().zip(guards);
        let increases: Option<Vec<_>> =
            increases.map(|((id, operation), guard)| Increase::new(id, operation, guard)).collect();
        let Some(increases) = increases else { return Ok(false) };
        self.change_together(plain, Increase::fields(&increases)?, &increases).await
    }

    /// Answers with how many were applied. What the server refuses to do was not.
    async fn send_operations(&self, plain: &Plain, commands: &[Statements]) -> Result<usize, Failure> {
        let mut applied = 0;
        for statements in commands {
            let command = statements.durable_command(Verb::Update, plain.as_str());
            let said = said(&self.db.run_raw_command(command).await?)?;
            // A number that would be too large, or a document: whoever looks at it says what it is. Others are of the server.
            if let Some((_, failure)) =
                said.refused.into_iter().find(|(_, failure)| failure.kind() != Kind::Store)
            {
                return Err(failure);
            }
            applied += said.held;
        }
        Ok(applied)
    }

    /// Applies one operation to what was read, if it is still there, again where others were faster.
    async fn operate_under_guard(
        &self,
        plain: &Plain,
        id: &DocumentId,
        operation: &Operation,
    ) -> Result<Operated, Failure> {
        let Some(key) = key(id) else { return Ok(Operated::Missing) };
        let backoff = Backoff::default().first(Duration::from_millis(2)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(30).delays(System.random());
        loop {
            let Some(kept) = self.kept(plain, [id].into_iter()).await?.remove(id) else {
                return Ok(Operated::Missing);
            };
            let exchange = match exchange(&key, kept, operation)? {
                Ok(exchange) => exchange,
                Err(why) => return Ok(why),
            };
            if self.send_statements(plain, Verb::Update, &exchange).await? == 1 {
                return Ok(Operated::Applied);
            }
            let busy = || Failure::new(Kind::Contended, "try again", "others keep changing the document");
            sleep(delays.next().ok_or_else(busy)?).await;
        }
    }
}

/// The statement that replaces what was read with what an operation makes of it, or why there is none. A guard may come back with the same
/// content, but not written by the same call: both together come once.
fn exchange(
    key: &RawBson,
    kept: Kept,
    operation: &Operation,
) -> Result<Result<Vec<Statements>, Operated>, Failure> {
    let Kept { stored, by } = kept;
    let mut filter = guarded(key, &stored.guard);
    filter.append(cstr!("_content.by"), by);
    let after = match stored.operated(operation, System.random()) {
        Ok(after) => after,
        Err(why) => return Ok(Err(why)),
    };
    let mut update = RawDocumentBuf::new();
    update.append(cstr!("q"), filter);
    update.append(cstr!("u"), Body::of(&after.body)?.encode(key, &after.guard, by, &after.operations)?);
    let mut statements = Vec::new();
    Statements::push(&mut statements, update);
    Ok(Ok(statements))
}
