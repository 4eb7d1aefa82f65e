//! What the doctor is told of a database: what its servers are, how far back they remember, what this user may do, and whether all indexes
//! and views are there.
//!
//! Not all may be looked at with the rights that Leftfold needs. What may not is said, with the role that would allow it.

mod oplog;
mod rights;
mod schema;
mod server;

use bson::{Document, doc};
use leftfold::Result;
use leftfold::doctor::{self, Area, Examine, Finding};
use mongodb::Database;

use crate::error::{Failure, code};
use crate::{Base, Mongo};

impl Examine for Mongo {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let base = &self.inner.base;
        let mut findings = base.run("look over the servers of", server::look(base)).await?;
        findings.extend(base.run("look at the oplog of", oplog::look(base)).await?);
        findings.extend(base.run("look at the rights in", rights::look(base)).await?);
        findings.extend(base.run("look at the indexes in", schema::look(base)).await?);
        findings.extend(doctor::reactions(self).await);
        Ok(findings)
    }

    async fn probe(&self) -> Result<()> {
        let base = &self.inner.base;
        // Asked of the primary, as everything else is: without one nothing can be written.
        let pinged = base.db.run_command(doc! { "ping": 1 }).await;
        pinged.map(drop).map_err(|error| Failure::from(error).to_error("reach", &base.place))
    }
}

/// What a server answered to a question.
enum Asked {
    Said(Document),
    /// This user may not ask it.
    Denied,
    /// It does not know of such things.
    Unknown,
}

/// Asks a server something that it may refuse to tell.
async fn ask(db: &Database, command: Document) -> Result<Asked, Failure> {
    /// Unauthorized; and for what a server of another kind does not have: no replication, no such command, no such option.
    const DENIED: i32 = 13;
    const UNKNOWN: [i32; 3] = [59, 72, 76];
    match db.run_command(command).await {
        Ok(said) => Ok(Asked::Said(said)),
        Err(error) => match code(&error) {
            Some((DENIED, _)) => Ok(Asked::Denied),
            Some((code, _)) if UNKNOWN.contains(&code) => Ok(Asked::Unknown),
            _ => Err(error.into()),
        },
    }
}

/// What is said where this user may not look.
fn denied(area: Area, subject: &str, what: &str, role: &str) -> Finding {
    let found = format!("{what} can't be seen with the rights of this user");
    Finding::notice(area, subject, found, format!("to have it looked at, give the user the role {role}"))
}

/// A number of whatever type.
fn number(document: &Document, key: &str) -> Option<f64> {
    match document.get(key)? {
        bson::Bson::Int32(number) => Some(f64::from(*number)),
        #[expect(clippy::cast_precision_loss, reason = "what is told of them is rounded anyway")]
        bson::Bson::Int64(number) => Some(*number as f64),
        bson::Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// What a server says of itself.
async fn hello(base: &Base) -> Result<Document, Failure> {
    Ok(base.client.database("admin").run_command(doc! { "hello": 1 }).await?)
}
