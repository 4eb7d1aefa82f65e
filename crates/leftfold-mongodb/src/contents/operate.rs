//! Operations: one update each. Many operations need no more commands than one.
//!
//! A reply gives the number of applied operations. If some were not applied, one query finds the
//! reason for each, by the same rules as in memory. An operation whose guard is still stored was
//! applied by this call. If the document remembers the operation under another guard, its origin is
//! unknown, and it counts as applied before. The server can't change a body that is stored as text.
//! Such operations read the document and replace it under its guard.

use std::collections::HashSet;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBson, RawDocumentBuf};
use leftfold::content::{ContentGuard, Operated, Operation};
use leftfold::react::ExternalCollection;
use leftfold::{Backoff, DocumentId, Env as _, Kind, System};
use tokio::time::sleep;

use super::direct::{self, Increase};
use super::read::key;
use super::record::{Body, Kept};
use super::write::guarded;
use crate::connection::Base;
use crate::connection::bulk::{Statements, Verb, parse};
use crate::error::Failure;

impl Base {
    /// Applies the operations that can be applied.
    pub(super) async fn operate(
        &self,
        plain: &ExternalCollection,
        operations: &[(DocumentId, Operation)],
    ) -> Result<Vec<Operated>, Failure> {
        let guards: Vec<_> = operations.iter().map(|_| ContentGuard::of_operation(System.random())).collect();
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
                // The document read above is outdated if an earlier operation in this loop changed
                // it.
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

    /// Applies many operations in one transaction if all can be applied. Returns whether it did.
    async fn apply_together(
        &self,
        plain: &ExternalCollection,
        operations: &[(DocumentId, Operation)],
        guards: &[ContentGuard],
    ) -> Result<bool, Failure> {
        let increases = operations.iter().zip(guards);
        let increases: Option<Vec<_>> =
            increases.map(|((id, operation), guard)| Increase::new(id, operation, guard)).collect();
        let Some(increases) = increases else { return Ok(false) };
        self.change_together(plain, Increase::fields(&increases)?, &increases).await
    }

    /// Returns the number of applied operations. An operation that the server refuses does not
    /// count.
    async fn send_operations(
        &self,
        plain: &ExternalCollection,
        commands: &[Statements],
    ) -> Result<usize, Failure> {
        let mut applied = 0;
        for statements in commands {
            let command = statements.durable_command(Verb::Update, plain.as_str());
            let reply = parse(&self.db.run_raw_command(command).await?)?;
            // `Kind::Store` means that a number or a document would be too large. The caller finds
            // that again and reports it. Other failures concern the server.
            if let Some((_, failure)) =
                reply.refused.into_iter().find(|(_, failure)| failure.kind() != Kind::Store)
            {
                return Err(failure);
            }
            applied += reply.matched;
        }
        Ok(applied)
    }

    /// Applies one operation by reading the document and replacing it under its guard. Retries if
    /// another writer was faster.
    async fn operate_under_guard(
        &self,
        plain: &ExternalCollection,
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
            let busy =
                || Failure::new(Kind::Contended, "try again", "other writers keep changing the document");
            sleep(delays.next().ok_or_else(busy)?).await;
        }
    }
}

/// Builds the statement that replaces the document with the operation's result, or returns the
/// reason against it. A guard can recur with the same content, but not from the same call: the pair
/// is unique.
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
