//! Operations, carried out by the statement that writes the document. SQLite calls a function with
//! the current row, which takes half as long as reading the row first.

use std::sync::{Arc, Mutex, PoisonError};

use leftfold::content::{ContentGuard, Operated, Operation, Stored};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Env as _, Error, Json, Result, System};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{CachedStatement, Connection};

use super::record::{bytes, remembered};
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

pub(super) struct OperateWork {
    pub(super) collection: ExternalCollection,
    pub(super) operations: Arc<[(DocumentId, Operation)]>,
}

impl Work for OperateWork {
    type Answer = Result<Vec<Operated>>;

    const DOING: &'static str = "apply operations in";

    /// Each operation succeeds or fails by itself.
    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut statement = Operating::statement(tx.connection, self.collection.as_str())?;
        // Set this even if an operation fails: earlier ones stay, and followers of the collection
        // must see them.
        tx.wrote_documents = true;
        Ok(Ran::Keep(Ok(tx.operating.run(&mut statement, &self.operations)?)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// The state shared by the statement and the functions that it calls.
#[derive(Clone, Default)]
pub(crate) struct Operating(Arc<Mutex<Option<Current>>>);

/// The current operation.
struct Current {
    operations: Arc<[(DocumentId, Operation)]>,
    at: usize,
    /// The number for its guard.
    number: u64,
    /// The outcome, once the row was found. The functions take its parts for the statement.
    outcome: Option<Result<Stored, Operated>>,
}

impl Operating {
    /// Registers the functions on a connection.
    pub(crate) fn install(&self, connection: &Connection) -> rusqlite::Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        let this = self.clone();
        connection
            .create_scalar_function("leftfold_operates", 2, flags, move |context| this.operates(context))?;
        let this = self.clone();
        connection.create_scalar_function("leftfold_body", 0, flags, move |_| {
            Ok(this.of_outcome(|stored| std::mem::replace(&mut stored.body, Json::stored("")).into_string()))
        })?;
        let this = self.clone();
        connection.create_scalar_function("leftfold_operations", 0, flags, move |_| {
            Ok(this.of_outcome(|stored| bytes(&stored.operations)))
        })
    }

    /// Prepares the statement that carries out operations.
    fn statement<'c>(connection: &'c Connection, table: &str) -> rusqlite::Result<CachedStatement<'c>> {
        let sql = format!(
            "UPDATE \"{table}\" SET body = leftfold_body(), guard = ?2, operations = leftfold_operations() \
             WHERE id = ?1 AND leftfold_operates(body, operations)"
        );
        connection.prepare_cached(&sql)
    }

    /// Carries out operations, each by itself.
    fn run(
        &self,
        statement: &mut CachedStatement<'_>,
        operations: &Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>, Failure> {
        *self.current() =
            Some(Current { operations: Arc::clone(operations), at: 0, number: 0, outcome: None });
        let all = self.run_each(statement, operations);
        *self.current() = None;
        all
    }

    fn run_each(
        &self,
        statement: &mut CachedStatement<'_>,
        operations: &[(DocumentId, Operation)],
    ) -> Result<Vec<Operated>, Failure> {
        let mut all = Vec::with_capacity(operations.len());
        for (at, (id, _)) in operations.iter().enumerate() {
            let number = System.random();
            if let Some(current) = self.current().as_mut() {
                (current.at, current.number) = (at, number);
            }
            let done = statement.execute((id.as_str(), ContentGuard::of_operation(number).as_bytes()));
            let outcome = self.current().as_mut().and_then(|current| current.outcome.take());
            if let Err(error) = done {
                // Earlier operations stay.
                return Err(Failure::from(error).unknown_if(all.contains(&Operated::Applied)));
            }
            all.push(match outcome {
                Some(Ok(_)) => Operated::Applied,
                Some(Err(why)) => why,
                None => Operated::Missing,
            });
        }
        Ok(all)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the document allows the operation.
    fn operates(&self, context: &Context<'_>) -> rusqlite::Result<bool> {
        let mut current = self.current();
        let Some(Current { operations, at, number, outcome }) = current.as_mut() else { return Ok(false) };
        let (id, operation) = &operations[*at];
        let stored = Stored {
            id: id.clone(),
            body: Json::stored(context.get_raw(0).as_str()?),
            guard: ContentGuard::stored(&[]),
            operations: remembered(context.get_raw(1).as_blob()?),
        };
        let operated = outcome.insert(stored.operated(operation, *number));
        Ok(operated.is_ok())
    }

    fn of_outcome<T>(&self, of: impl FnOnce(&mut Stored) -> T) -> Option<T> {
        match self.current().as_mut()?.outcome.as_mut()? {
            Ok(stored) => Some(of(stored)),
            Err(_) => None,
        }
    }
}
