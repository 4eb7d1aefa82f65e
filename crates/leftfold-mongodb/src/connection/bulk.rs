//! Many guarded writes in one command.
//!
//! A reply gives the number of guards that held, but not which ones.

use bson::raw::cstr;
use bson::{Document, RawArrayBuf, RawDocumentBuf};
use leftfold::Kind;
use mongodb::error::ErrorKind;

use crate::error::{DUPLICATE_KEY, Failure, is_duplicate};

/// The size limits of a command, which is itself a BSON document.
const COMMAND_BYTES: usize = 12 << 20;
const COMMAND_STATEMENTS: usize = 50_000;

/// The operation of a command.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
}

/// The statements of one command: inserts, updates or deletes.
#[derive(Default)]
pub(crate) struct Statements {
    list: RawArrayBuf,
    count: usize,
    bytes: usize,
}

impl Statements {
    /// Adds a statement to the last command, or to a new one if that is full.
    pub(crate) fn push(commands: &mut Vec<Self>, statement: RawDocumentBuf) {
        let bytes = statement.as_bytes().len() + 64;
        let is_full = |last: &Self| last.count == COMMAND_STATEMENTS || last.bytes + bytes > COMMAND_BYTES;
        if commands.last().is_none_or(is_full) {
            commands.push(Self::default());
        }
        if let Some(last) = commands.last_mut() {
            last.list.push(statement);
            last.count += 1;
            last.bytes += bytes;
        }
    }

    /// Returns the number of statements.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the command for use inside a transaction.
    pub(crate) fn command(&self, verb: Verb, collection: &str) -> RawDocumentBuf {
        let (name, list) = match verb {
            Verb::Insert => (cstr!("insert"), cstr!("documents")),
            Verb::Update => (cstr!("update"), cstr!("updates")),
            Verb::Delete => (cstr!("delete"), cstr!("deletes")),
        };
        let mut command = RawDocumentBuf::new();
        command.append(name, collection);
        command.append(list, self.list.clone());
        command.append(cstr!("ordered"), false);
        command
    }

    /// Returns the command for use outside a transaction, with its own write concern.
    pub(crate) fn durable_command(&self, verb: Verb, collection: &str) -> RawDocumentBuf {
        let mut command = self.command(verb, collection);
        let concern = bson::rawdoc! { "w": "majority", "j": true, "wtimeout": 10_000 };
        command.append(cstr!("writeConcern"), concern);
        command
    }
}

/// Returns the number of guards that held, or the first error in the reply.
pub(crate) fn matched(reply: &Document) -> Result<usize, Failure> {
    let first = |field: &str| reply.get_array(field).ok().and_then(|list| list.first()?.as_document());
    if let Some(error) = first("writeErrors").or(reply.get_document("writeConcernError").ok()) {
        let report = error.get_str("errmsg").unwrap_or("a write failed").to_owned();
        return Err(Failure::new(
            Kind::Unavailable,
            "try again; if it fails again, check the server's log",
            report,
        ));
    }
    Ok(reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
}

/// A parsed reply: the number of guards that held, the indexes of inserts whose document exists,
/// and the statements refused for other reasons.
pub(crate) struct Reply {
    pub(crate) matched: usize,
    pub(crate) existing: Vec<usize>,
    pub(crate) refused: Vec<(usize, Failure)>,
}

/// Parses a reply whose statements succeed or fail one by one.
pub(crate) fn parse(reply: &Document) -> Result<Reply, Failure> {
    let code = |error: &Document| error.get_i32("code").unwrap_or(0);
    let failure = |error: &Document| {
        Failure::reported(code(error), error.get_str("errmsg").unwrap_or("a write failed"))
    };
    if let Ok(error) = reply.get_document("writeConcernError") {
        return Err(failure(error).unknown());
    }
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    let place = |error: &Document| error.get_i32("index").ok().and_then(|index| usize::try_from(index).ok());
    let errors = errors.iter().filter_map(bson::Bson::as_document);
    let (existing, refused): (Vec<_>, Vec<_>) = errors.partition(|error| code(error) == DUPLICATE_KEY);
    let existing = existing.into_iter().filter_map(place).collect();
    let refused = refused.into_iter().filter_map(|error| Some((place(error)?, failure(error)))).collect();
    let matched = reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    Ok(Reply { matched, existing, refused })
}

/// Returns the indexes of the inserts whose document exists. `None` if any other error occurred.
pub(crate) fn duplicates(error: &mongodb::error::Error) -> Option<Vec<usize>> {
    match &*error.kind {
        ErrorKind::InsertMany(error) if error.write_concern_error.is_none() => {
            let errors = error.write_errors.as_ref()?;
            let is_duplicate = |error: &mongodb::error::IndexedWriteError| error.code == DUPLICATE_KEY;
            errors.iter().all(is_duplicate).then(|| errors.iter().map(|error| error.index).collect())
        }
        _ => is_duplicate(error).then(|| vec![0]),
    }
}
