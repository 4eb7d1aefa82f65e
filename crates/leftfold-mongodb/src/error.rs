//! MongoDB errors in Leftfold's terms: the failed operation, the database, and the advice.

use std::fmt;

use leftfold::{Error, Kind};
use mongodb::error::{
    ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};

/// A failure that does not name the operation yet. It is cloned if it affects a whole group.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    advice: &'static str,
    report: String,
    /// `true` if the transaction wrote nothing and may succeed if it is run again.
    repeatable: bool,
}

const DAMAGED: &str =
    "the database is damaged, or another program has changed it: keep a copy, and restore a backup";

/// Error codes of servers that are not the primary, shut down, or can't be reached.
const UNAVAILABLE: [i32; 13] = [6, 7, 50, 89, 91, 189, 246, 262, 9001, 10_107, 11_600, 11_602, 13_435];
/// The code of a conflict with another writer of the same documents.
const WRITE_CONFLICT: i32 = 112;
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
const RETRY_ADVICE: &str = "try again; if it fails again, check the server's log";

impl Failure {
    pub(crate) fn new(kind: Kind, advice: &'static str, report: impl Into<String>) -> Self {
        Self { kind, advice, report: report.into(), repeatable: false }
    }

    /// Creates the failure for stored data that can't be read.
    pub(crate) fn damaged(report: impl Into<String>) -> Self {
        Self::new(Kind::Format, DAMAGED, report)
    }

    /// Creates the failure for a server's error about one statement of a command.
    pub(crate) fn reported(code: i32, message: &str) -> Self {
        let (kind, advice, report) = judge_code(code, message.to_owned());
        Self::new(kind, advice, report)
    }

    /// Creates the failure for a server that does not answer.
    pub(crate) fn silent() -> Self {
        let advice = "check that the server runs and can be reached; try again";
        let failure = Self::new(Kind::Unavailable, advice, "the server did not answer in time");
        Self { repeatable: true, ..failure }
    }

    /// Returns the same failure with an unknown outcome: the write may have happened.
    pub(crate) fn unknown(self) -> Self {
        let advice = "the outcome is unknown; repeat the same call, which is harmless";
        Self { kind: Kind::Unknown, advice, ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the report without the advice.
    pub(crate) fn report(&self) -> &str {
        &self.report
    }

    /// Returns whether the transaction wrote nothing and may be run again.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Converts into an error that names the operation and the database.
    pub(crate) fn to_error(&self, doing: &str, place: &str) -> Error {
        let Self { kind, advice, report, .. } = self;
        Error::new(*kind, format!("could not {doing} {place}: {report}; {advice}"))
    }
}

/// The text of a failure, with the driver's error as its source.
#[derive(Debug)]
struct Reported {
    text: String,
    source: mongodb::error::Error,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Reported {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Converts into an error that names the operation, with the driver's error as its source. The
/// labels of that error tell whether a transaction may be run again.
pub(crate) fn sourced(source: mongodb::error::Error, doing: &str, place: &str) -> Error {
    let Failure { kind, advice, report, .. } = source.clone().into();
    let reported = Reported { text: format!("{report}; {advice}"), source };
    Error::new(kind, format!("could not {doing} {place}")).with_source(reported)
}

impl From<mongodb::error::Error> for Failure {
    fn from(error: mongodb::error::Error) -> Self {
        let repeatable = error.contains_label(TRANSIENT_TRANSACTION_ERROR)
            && !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
        let (kind, advice, report) = judge(&error);
        let kind = if repeatable && kind != Kind::Contended { Kind::Unavailable } else { kind };
        Self { kind, advice, report, repeatable }
    }
}

fn judge(error: &mongodb::error::Error) -> (Kind, &'static str, String) {
    // Remove the driver's empty debug fields from the message.
    let report = error.kind.to_string().replace(", labels: {}, source: None, server response: None", "");
    match &*error.kind {
        ErrorKind::Authentication { message, .. } => {
            (Kind::Store, "check the user, the password and `authSource` in the URL", message.clone())
        }
        ErrorKind::ServerSelection { .. } => (
            Kind::Unavailable,
            "check that the server runs, that its address is right, and that a primary is elected",
            report,
        ),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } | ErrorKind::DnsResolve { .. } => {
            (Kind::Unavailable, "check that the server runs and can be reached; try again", report)
        }
        ErrorKind::Shutdown => (Kind::Stopped, "open the store again", report),
        ErrorKind::BsonDeserialization(_) | ErrorKind::Bson(_) => (Kind::Format, DAMAGED, report),
        _ => match code(error) {
            Some((code, message)) => judge_code(code, message),
            None => (Kind::Store, RETRY_ADVICE, report),
        },
    }
}

fn judge_code(code: i32, message: String) -> (Kind, &'static str, String) {
    let (kind, advice) = match code {
        13 => (Kind::Store, "give the user the role `readWrite` on this database, and `dbAdmin` to rebuild"),
        18 => (Kind::Store, "check the user, the password and `authSource` in the URL"),
        14_031 => (Kind::Full, "free disk space on the server, and try again"),
        64 => (Kind::Unknown, "the outcome is unknown; repeat the same call"),
        WRITE_CONFLICT => (Kind::Contended, "other writers keep changing the same documents; try again"),
        code if UNAVAILABLE.contains(&code) => (Kind::Unavailable, RETRY_ADVICE),
        _ => (Kind::Store, RETRY_ADVICE),
    };
    (kind, advice, message)
}

/// Returns the code and the message that a server reported.
pub(crate) fn code(error: &mongodb::error::Error) -> Option<(i32, String)> {
    match &*error.kind {
        ErrorKind::Command(error) => Some((error.code, format!("{} ({})", error.message, error.code_name))),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some((error.code, error.message.clone())),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some((64, error.message.clone())),
        ErrorKind::InsertMany(error) => match (&error.write_errors, &error.write_concern_error) {
            (Some(errors), _) if !errors.is_empty() => Some((errors[0].code, errors[0].message.clone())),
            (_, Some(error)) => Some((64, error.message.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether an insert failed because the document exists.
pub(crate) fn is_duplicate(error: &mongodb::error::Error) -> bool {
    code(error).is_some_and(|(code, _)| code == DUPLICATE_KEY)
}

impl From<bson::error::Error> for Failure {
    fn from(error: bson::error::Error) -> Self {
        Self::damaged(error.to_string())
    }
}

impl From<fmt::Error> for Failure {
    fn from(error: fmt::Error) -> Self {
        Self::damaged(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_conflict_is_not_taken_for_a_server_that_is_gone() {
        assert_eq!(Failure::reported(WRITE_CONFLICT, "write conflict").kind(), Kind::Contended);
        assert_eq!(Failure::reported(91, "shutting down").kind(), Kind::Unavailable);
        assert!(Error::new(Kind::Contended, "").is_transient());
    }
}
