//! The doctor's view of a database: its servers, the oplog window, the user's rights, and the
//! indexes and views.
//!
//! The rights that Leftfold needs do not allow every check. The doctor reports a check that is
//! denied, and the role that would allow it.

mod oplog;
mod rights;
mod schema;
mod server;

use bson::{Document, doc};
use leftfold::inspect::doctor::{self, Area, Examine, Finding};
use leftfold::{Collection, Result};
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

/// A server's answer to a command.
enum Asked {
    Said(Document),
    /// The user may not run the command.
    Denied,
    /// The server does not support the command.
    Unknown,
}

/// Runs a command that the server may refuse.
async fn ask(db: &Database, command: Document) -> Result<Asked, Failure> {
    /// The code for an unauthorized command. `UNKNOWN` holds the codes of other kinds of servers:
    /// no replication, no such command, no such option.
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

/// Creates the finding for a check that the user's rights do not allow.
fn denied(area: Area, subject: &str, what: &str, role: &str) -> Finding {
    let found = format!("{what} can't be seen with the rights of this user");
    Finding::notice(area, subject, found, format!("to have it looked at, give the user the role {role}"))
}

/// Reads a number of any BSON number type.
fn number(document: &Document, key: &str) -> Option<f64> {
    match document.get(key)? {
        bson::Bson::Int32(number) => Some(f64::from(*number)),
        #[expect(clippy::cast_precision_loss, reason = "what is told of them is rounded anyway")]
        bson::Bson::Int64(number) => Some(*number as f64),
        bson::Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Returns the server's answer to `hello`.
async fn hello(base: &Base) -> Result<Document, Failure> {
    Ok(base.client.database("admin").run_command(doc! { "hello": 1 }).await?)
}
