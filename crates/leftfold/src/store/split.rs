//! A log in one store and documents in another.

use crate::delegate;
use crate::documents::{Collection, Documents};
use crate::error::Result;
use crate::inspect::doctor::{Examine, Finding};
use crate::log::{Append, Log};
use crate::revision::Counters;
use crate::sequence::Sequences;

/// A store whose log is in one store and whose documents are in another. Nothing is ever written to
/// both at once, so all guarantees hold.
///
/// ```
/// use leftfold::{SplitStore, Leftfold, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leftfold::Result<()> {
/// let app = Leftfold::on(SplitStore { log: Memory::default(), documents: Memory::default() });
/// # app.open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SplitStore<L, D> {
    /// The store of the log.
    pub log: L,
    /// The store of the documents and checkpoints.
    pub documents: D,
}

impl<L: Log, D: Send + Sync + 'static> Log for SplitStore<L, D> {
    delegate!(log: Log);
}

impl<L: Append, D: Send + Sync + 'static> Append for SplitStore<L, D> {
    delegate!(log: Append);
}

impl<L: Send + Sync + 'static, D: Documents> Documents for SplitStore<L, D> {
    delegate!(documents: Documents);
}

impl<L: Sequences, D: Send + Sync + 'static> Sequences for SplitStore<L, D> {
    delegate!(log: Sequences);
}

impl<L: Send + Sync + 'static, D: Counters> Counters for SplitStore<L, D> {
    delegate!(documents: Counters);
}

impl<L: Examine, D: Examine> Examine for SplitStore<L, D> {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let mut findings = self.log.examine().await?;
        findings.extend(self.documents.examine().await?);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        self.documents.collections().await
    }

    async fn probe(&self) -> Result<()> {
        self.log.probe().await?;
        self.documents.probe().await
    }
}
