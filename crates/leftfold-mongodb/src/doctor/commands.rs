//! Commands that a server may refuse, and their answers.

use bson::{Document, doc};
use leftfold::inspect::doctor::{Area, Finding};
use mongodb::Database;

use crate::connection::Base;
use crate::error::{Failure, code};

/// A server's answer to a command.
pub(super) enum Answer {
    Reply(Document),
    /// The user may not run the command.
    Denied,
    /// The server does not support the command.
    Unknown,
}

/// Runs a command that the server may refuse.
pub(super) async fn ask(db: &Database, command: Document) -> Result<Answer, Failure> {
    /// The code for an unauthorized command. `UNKNOWN` holds the codes of other kinds of servers:
    /// no replication, no such command, no such option.
    const DENIED: i32 = 13;
    const UNKNOWN: [i32; 3] = [59, 72, 76];
    match db.run_command(command).await {
        Ok(reply) => Ok(Answer::Reply(reply)),
        Err(error) => match code(&error) {
            Some((DENIED, _)) => Ok(Answer::Denied),
            Some((code, _)) if UNKNOWN.contains(&code) => Ok(Answer::Unknown),
            _ => Err(error.into()),
        },
    }
}

/// Creates the finding for a check that the user's rights do not allow.
pub(super) fn denied(area: Area, subject: &str, what: &str, role: &str) -> Finding {
    let found = format!("this user's rights do not allow reading {what}");
    Finding::notice(area, subject, found, format!("to check it, give the user the role {role}"))
}

/// Reads a number of any BSON number type.
pub(super) fn number(document: &Document, key: &str) -> Option<f64> {
    match document.get(key)? {
        bson::Bson::Int32(number) => Some(f64::from(*number)),
        #[expect(clippy::cast_precision_loss, reason = "findings show rounded numbers")]
        bson::Bson::Int64(number) => Some(*number as f64),
        bson::Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Returns the server's answer to `hello`.
pub(super) async fn hello(base: &Base) -> Result<Document, Failure> {
    Ok(base.client.database("admin").run_command(doc! { "hello": 1 }).await?)
}
