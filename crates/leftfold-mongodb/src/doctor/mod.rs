//! The doctor's view of a database: its servers, the oplog window, the user's rights, and the
//! indexes and views.
//!
//! The rights that Leftfold needs do not allow every check. The doctor reports a check that is
//! denied, and the role that would allow it.

mod commands;
mod oplog;
mod rights;
mod schema;
mod server;

use bson::doc;
use leftfold::inspect::doctor::{self, Examine, Finding};
use leftfold::{Collection, Result};

use crate::Mongo;
use crate::error::Failure;

impl Examine for Mongo {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let base = &self.inner.base;
        let mut findings = base.run("check the servers of", server::look(base)).await?;
        findings.extend(base.run("check the oplog of", oplog::look(base)).await?);
        findings.extend(base.run("check the rights in", rights::look(base)).await?);
        findings.extend(base.run("check the indexes in", schema::look(base)).await?);
        findings.extend(doctor::reactions(self).await);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        let base = &self.inner.base;
        let generations = base.run("list the collections of", schema::generations(base)).await?;
        Ok(generations.into_iter().map(|(collection, _)| collection).collect())
    }

    async fn probe(&self) -> Result<()> {
        let base = &self.inner.base;
        // The ping goes to the primary, as all commands do: without a primary no write is possible.
        let pinged = base.db.run_command(doc! { "ping": 1 }).await;
        pinged.map(drop).map_err(|error| Failure::from(error).to_error("reach", &base.place))
    }
}
