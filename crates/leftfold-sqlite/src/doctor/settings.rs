//! The settings of the writing connection.

use leftfold::inspect::doctor::{Area, Finding};
use leftfold::{Error, Result};

use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;
use crate::schema::{FORMAT, format};

/// The settings of the writing connection.
#[derive(Debug)]
pub(super) struct Settings {
    journal_mode: String,
    synchronous: i64,
    format: u32,
}

/// Reads the settings in the writing thread, which also shows that it can write.
pub(super) struct SettingsWork;

impl Work for SettingsWork {
    type Answer = Result<Settings>;

    const DOING: &'static str = "begin to write to";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let file = tx.connection;
        Ok(Ran::Keep(Ok(Settings {
            journal_mode: file.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
            synchronous: file.pragma_query_value(None, "synchronous", |row| row.get(0))?,
            format: format(file)?.unwrap_or(0),
        })))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

impl Settings {
    /// Judges the settings that protect commits, and the format.
    pub(super) fn judged(&self) -> [Finding; 3] {
        const WAL: &str = "wal";
        /// The value of FULL; a higher one is EXTRA.
        const FULL: i64 = 2;
        let Self { journal_mode, synchronous, format } = self;
        let again = "another program has changed it; stop all processes that use the file, and open it again";
        let journal = if journal_mode == WAL {
            Finding::fine(Area::Store, "journal mode", "WAL")
        } else {
            let found = format!("{journal_mode} instead of WAL: readers and writers block each other");
            Finding::wrong(Area::Store, "journal mode", found, again)
        };
        let durable = if *synchronous >= FULL {
            Finding::fine(Area::Store, "durability", "each commit is on the disk before it is acknowledged")
        } else {
            let found = format!("synchronous is {synchronous}: a power failure loses commits");
            Finding::wrong(Area::Store, "durability", found, again)
        };
        let version = if *format == FORMAT {
            Finding::fine(Area::Versions, "format", format!("{format}"))
        } else {
            let found =
                format!("the file has format {format}, and this version of Leftfold writes format {FORMAT}");
            Finding::wrong(
                Area::Versions,
                "format",
                found,
                "use the newest version of Leftfold in all processes",
            )
        };
        [journal, durable, version]
    }
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity::{Fine, Wrong};

    use super::*;

    #[test]
    fn settings_that_lose_commits_are_wrong() {
        let settings = |journal_mode: &str, synchronous, format| {
            let settings = Settings { journal_mode: journal_mode.to_owned(), synchronous, format };
            settings.judged().map(|finding| finding.severity)
        };
        assert_eq!(settings("wal", 2, FORMAT), [Fine, Fine, Fine]);
        assert_eq!(settings("wal", 3, FORMAT), [Fine, Fine, Fine]);
        assert_eq!(settings("delete", 1, FORMAT + 1), [Wrong, Wrong, Wrong]);
    }
}
