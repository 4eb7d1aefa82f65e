//! SQLite errors in Leftfold's terms: the failed operation, the file, and the advice.

use std::path::Path;

use leftfold::{Error, Kind};
use rusqlite::ErrorCode;

/// A failure that does not name the operation yet. It is cloned if it affects a whole group.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    advice: &'static str,
    report: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, advice: &'static str, report: impl Into<String>) -> Self {
        Self { kind, advice, report: report.into() }
    }

    /// Creates the failure for stored data that can't be read.
    pub(crate) fn damaged(report: impl Into<String>) -> Self {
        Self { kind: Kind::Format, advice: DAMAGED, report: report.into() }
    }

    /// Creates the failure for input that this store can't accept.
    pub(crate) fn refused(advice: &'static str, report: impl Into<String>) -> Self {
        Self { kind: Kind::Invalid, advice, report: report.into() }
    }

    /// Returns the same failure with an unknown outcome: the write may have happened.
    pub(crate) fn unknown(self) -> Self {
        let advice = "the outcome is unknown; repeat the same call, which is harmless";
        Self { kind: Kind::Unknown, advice, ..self }
    }

    /// Returns the same failure, with an unknown outcome if other writes may have happened.
    pub(crate) fn unknown_if(self, is_unknown: bool) -> Self {
        if is_unknown { self.unknown() } else { self }
    }

    /// Converts into an error that names the operation and the file.
    pub(crate) fn to_error(&self, doing: &str, path: &Path) -> Error {
        let Self { kind, advice, report } = self;
        Error::new(*kind, format!("could not {doing} {}: {report}; {advice}", path.display()))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

const DAMAGED: &str =
    "the file is damaged, or another program has changed it: keep a copy, and restore a backup";

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let report = error.to_string();
        let (kind, advice) = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => (Kind::Full, "free disk space or raise `max_bytes`, and try again"),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                Kind::Unavailable,
                "another process has locked the file; try again, or find and stop that process",
            ),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (Kind::Format, DAMAGED),
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                Kind::Store,
                "check that its directory exists and that this process may write to both file and directory",
            ),
            Some(ErrorCode::SystemIoFailure) => {
                (Kind::Store, "the disk or the file system failed; check the system's log")
            }
            _ if report.contains("no such table: leftfold_tasks") => {
                (Kind::Store, "open the file with `Sqlite::open` first, which creates its tables")
            }
            _ if report.contains("no such table: leftfold_") => (
                Kind::Store,
                "the collection is not in this file; start its projection, or call `prepare`, first",
            ),
            Some(_) => (Kind::Store, "try again; if it fails again, please report it"),
            None => (Kind::Format, DAMAGED),
        };
        Self { kind, advice, report }
    }
}

impl From<rusqlite::types::FromSqlError> for Failure {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::damaged(error.to_string())
    }
}
