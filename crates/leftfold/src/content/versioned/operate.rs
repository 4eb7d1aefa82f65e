//! Operations on documents.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Versioned;
use super::batches::Batches;
use crate::content::Operation;
use crate::content::store::{Contents, Operated};
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Applies an operation. An operation that was applied before is not applied again.
    ///
    /// Fails if the document does not exist or does not allow it. Also fails if the id is so old
    /// that the outcome is unknown.
    pub async fn operate(&self, id: &str, operation: Operation) -> Result<Operated> {
        let (id, number) = (DocumentId::new(id)?, operation.id());
        let operated = self.operate_all(vec![(id.clone(), operation)]).await?.pop();
        let operated = operated.unwrap_or(Operated::Missing);
        let doing = format!("applying operation {number} to {id} in {}", self.name());
        let fail = |why: String| Err(Error::new(Kind::Invalid, format!("{doing}: {why}")));
        match operated {
            Operated::Applied | Operated::AlreadyApplied => Ok(operated),
            Operated::Missing => fail("there is no such document; insert it first".to_owned()),
            Operated::Impossible(invalid) => fail(invalid.to_string()),
            Operated::TooOld => fail(
                "it is older than all operations that the document remembers, so its outcome is unknown; \
                 read the document, and give the operation a new id if it was not applied"
                    .to_owned(),
            ),
        }
    }

    /// Applies many operations in as few store calls as possible, each independently. Returns the
    /// results in order.
    pub async fn operate_all(&self, operations: Vec<(DocumentId, Operation)>) -> Result<Vec<Operated>> {
        let documents: HashSet<_, RandomState> = operations.iter().map(|(id, _)| id).collect();
        // Operations on the same document stay in order.
        let most = if documents.len() == operations.len() { S::PIECE } else { operations.len() };
        drop(documents);
        let mut operations = operations.into_iter();
        let mut batches = Batches::new(Self::AT_ONCE);
        while operations.len() > 0 {
            let batch = operations.by_ref().take(most).collect();
            batches.begin(Box::pin(self.clone().operate_batch(batch)));
        }
        batches.end().await
    }

    async fn operate_batch(self, operations: Arc<[(DocumentId, Operation)]>) -> Result<Vec<Operated>> {
        Ok(self.with_retry(|| self.store.operate(&self.collection, Arc::clone(&operations))).await?.0)
    }
}
