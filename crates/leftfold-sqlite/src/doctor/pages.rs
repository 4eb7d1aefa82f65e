//! The pages of the file: damage, and free space.

use std::path::Path;

use leftfold::inspect::doctor::{Area, Finding};
use rusqlite::{Connection, ErrorCode};

use super::file;
use crate::error::Failure;

/// The largest file that is checked for damage: reading a larger one takes too long while a caller
/// waits.
const CHECKED_BYTES: u64 = 512 << 20;

/// The numbers of pages in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    bytes_each: u64,
    all: u64,
    free: u64,
}

impl Pages {
    pub(super) fn read(file: &Connection) -> Result<Self, Failure> {
        let number = |name: &str| -> Result<u64, Failure> {
            let number: i64 = file.pragma_query_value(None, name, |row| row.get(0))?;
            Ok(number.unsigned_abs())
        };
        Ok(Self {
            bytes_each: number("page_size")?,
            all: number("page_count")?,
            free: number("freelist_count")?,
        })
    }

    /// Returns whether the file is small enough for the check for damage.
    pub(super) fn is_checked(self) -> bool {
        self.bytes() <= CHECKED_BYTES
    }

    /// Returns the finding for a file that is too large for the check.
    pub(super) fn unchecked(self, path: &Path) -> Finding {
        let found = format!("not checked: the file has {}", file::size(self.bytes()));
        let advice =
            format!("check the file when there is time: sqlite3 {} 'PRAGMA quick_check'", path.display());
        Finding::notice(Area::Store, "damage", found, advice)
    }

    pub(super) fn bytes(self) -> u64 {
        self.all * self.bytes_each
    }

    /// Returns a notice if most pages of a large file are free.
    pub(super) fn judged(self) -> Option<Finding> {
        const LARGE: u64 = 64 << 20;
        let free = self.free * self.bytes_each;
        if free < LARGE || self.free * 2 < self.all {
            return None;
        }
        let found = format!("{} of {} are free", file::size(free), file::size(self.bytes()));
        let advice = "new events and documents fill them; to shrink the file, stop all processes that use it, and run VACUUM";
        Some(Finding::notice(Area::Store, "free pages", found, advice))
    }
}

/// Returns the damage that SQLite finds in the file.
pub(super) fn quick_check(file: &Connection) -> Vec<String> {
    const MOST: i64 = 5;
    match check(file, &MOST.to_string()) {
        Ok(found) => found,
        // The application's tables may need functions that only the application has. Then check
        // only Leftfold's tables.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            own_tables(file).unwrap_or_else(|error| vec![error.to_string()])
        }
        Err(error) => vec![error.to_string()],
    }
}

fn own_tables(file: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'leftfold_*' ORDER BY name";
    let mut statement = file.prepare(sql)?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let mut found = Vec::new();
    for name in names {
        found.extend(check(file, &format!("\"{name}\""))?);
    }
    Ok(found)
}

fn check(file: &Connection, what: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = file.prepare(&format!("PRAGMA quick_check({what})"))?;
    let found = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(found.into_iter().filter(|found| found != "ok").collect())
}

/// Judges the result of the check.
pub(super) fn damage(found: &[String]) -> Finding {
    match found {
        [] => Finding::fine(Area::Store, "damage", "none found"),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let advice = "stop all processes that use the file, keep a copy, and restore a backup; or save the readable data with sqlite3's .recover";
            Finding::wrong(Area::Store, "damage", format!("{first}{more}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity::{Fine, Wrong};

    use super::*;

    #[test]
    fn a_large_file_that_is_mostly_free_is_reported() {
        let pages = |all, free| Pages { bytes_each: 4_096, all, free }.judged();
        assert_eq!(pages(100, 99), None, "it is small");
        assert_eq!(pages(100_000, 40_000), None, "most of it is used");
        let finding = pages(100_000, 60_000).unwrap();
        assert_eq!(finding.found, "234 MiB of 390 MiB are free");
    }

    #[test]
    fn damage_is_reported_with_the_first_error() {
        assert_eq!(damage(&[]).severity, Fine);
        let finding = damage(&["a".to_owned(), "b".to_owned()]);
        assert_eq!((finding.severity, finding.found.as_str()), (Wrong, "a, and 1 more"));
    }
}
