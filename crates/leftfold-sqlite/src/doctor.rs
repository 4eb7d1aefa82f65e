//! The doctor's view of a file: its settings, its integrity, its tables, and the free space.

mod file;
mod tables;

use std::time::Duration;

use leftfold::inspect::doctor::{self, Area, Examine, Finding, span};
use leftfold::store::clock::{ClockStep, Reading};
use leftfold::{Collection, Error, Result};
use rusqlite::{Connection, ErrorCode};

use crate::Sqlite;
use crate::clock;
use crate::error::Failure;
use crate::schema::{self, FORMAT};
use crate::writer::{Ran, Tx, Work};

/// The largest file that is checked for damage: reading a larger one takes too long while a caller
/// waits.
const CHECKED_BYTES: u64 = 512 << 20;

/// A file larger than 512 MiB is not checked for damage, because that reads the whole file. The
/// finding tells how to run the check.
impl Examine for Sqlite {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let readers = &self.inner.readers;
        let mut findings =
            vec![Finding::fine(Area::Versions, "SQLite", format!("version {}", rusqlite::version()))];
        if let Err(failure) = self.inner.identity.check() {
            let error = failure.to_error("use", &self.inner.path);
            findings.push(Finding::failed(Area::Store, "file", &error));
        }
        match self.inner.writer.run(SettingsWork).await {
            Ok(settings) => findings.extend(settings.judged()),
            Err(error) => findings.push(Finding::failed(Area::Store, "writing", &error)),
        }
        let pages = readers.read("look at the pages of", Pages::read).await?;
        findings.extend(pages.judged());
        let shown = self.inner.path.display().to_string();
        if pages.bytes() <= CHECKED_BYTES {
            let checked = readers.read("check", |file| Ok(quick_check(file))).await?;
            findings.push(damage(&checked));
        } else {
            let found = format!("not looked for: the file has {}", file::size(pages.bytes()));
            let advice = format!("have it checked when there is time: sqlite3 {shown} 'PRAGMA quick_check'");
            findings.push(Finding::notice(Area::Store, "damage", found, advice));
        }
        findings.extend(file::look(&self.inner.path, pages.bytes()));
        let (now, step) =
            readers.read("read the time in", |file| Ok((clock::read(file)?, clock::step(file)?))).await?;
        findings.push(time(now, step));
        findings.extend(readers.read("look at the tables of", tables::look).await?);
        findings.extend(doctor::reactions(self).await);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        self.inner.readers.read("list the collections of", tables::collections).await
    }

    async fn probe(&self) -> Result<()> {
        self.probe_file().await
    }
}

/// Judges the store's time: warns if the machine's clock was set back, or was recently set at all.
fn time(now: Reading, step: Option<ClockStep>) -> Finding {
    const SUBJECT: &str = "the store's time";
    const AHEAD: Duration = Duration::from_secs(1);
    const LATELY: i64 = 7 * 24 * 3_600 * 1_000_000;
    let ahead = now.ahead();
    if ahead > AHEAD {
        let found = format!(
            "{} ahead of this machine's clock, which was set back: leases and waits go on as they were",
            span(ahead)
        );
        let advice = "see that the clock is right; until it has caught up, at a tenth of the time that passes, what is due at a \
                      time of day comes early by as much";
        return Finding::warning(Area::Clock, SUBJECT, found, advice);
    }
    match step.filter(|step| now.time.saturating_sub(step.at) < LATELY) {
        Some(ClockStep { by, .. }) => {
            let way = if by > 0 { "forward" } else { "back" };
            let found = format!(
                "the clock of this machine was set {way} by {}",
                span(Duration::from_micros(by.unsigned_abs()))
            );
            let advice = "see that the clock is right, and that something keeps it so; if the machine slept, nothing is to be done";
            Finding::notice(Area::Clock, SUBJECT, found, advice)
        }
        None => Finding::fine(Area::Clock, SUBJECT, "that of this machine's clock"),
    }
}

/// The settings of the writing connection.
#[derive(Debug)]
struct Settings {
    journal_mode: String,
    synchronous: i64,
    format: u32,
}

/// Reads the settings in the writing thread, which also shows that it can write.
struct SettingsWork;

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
            format: schema::format(file)?.unwrap_or(0),
        })))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

impl Settings {
    fn judged(&self) -> [Finding; 3] {
        const WAL: &str = "wal";
        /// The value of FULL; a higher one is EXTRA.
        const FULL: i64 = 2;
        let Self { journal_mode, synchronous, format } = self;
        let again = "another program has changed it; stop all that use the file, and open it again";
        let journal = if journal_mode == WAL {
            Finding::fine(Area::Store, "journal mode", "WAL")
        } else {
            let found = format!("{journal_mode} instead of WAL: readers and writers hold each other up");
            Finding::wrong(Area::Store, "journal mode", found, again)
        };
        let durable = if *synchronous >= FULL {
            Finding::fine(Area::Store, "durability", "each commit is on the disk before it is acknowledged")
        } else {
            let found = format!("synchronous is {synchronous}: a machine that loses power forgets commits");
            Finding::wrong(Area::Store, "durability", found, again)
        };
        let version = if *format == FORMAT {
            Finding::fine(Area::Versions, "format", format!("{format}"))
        } else {
            let found = format!("the file has format {format}, and this program writes {FORMAT}");
            Finding::wrong(Area::Versions, "format", found, "use the newest version of Leftfold everywhere")
        };
        [journal, durable, version]
    }
}

/// The numbers of pages in a file.
#[derive(Clone, Copy, Debug)]
struct Pages {
    bytes_each: u64,
    all: u64,
    free: u64,
}

impl Pages {
    fn read(file: &Connection) -> Result<Self, Failure> {
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

    fn bytes(self) -> u64 {
        self.all * self.bytes_each
    }

    /// Returns a notice if most pages of a large file are free.
    fn judged(self) -> Option<Finding> {
        const LARGE: u64 = 64 << 20;
        let free = self.free * self.bytes_each;
        if free < LARGE || self.free * 2 < self.all {
            return None;
        }
        let found = format!("{} of {} hold nothing any more", file::size(free), file::size(self.bytes()));
        let advice = "new events and documents fill them; to give them back, stop all that use the file, and run VACUUM in it";
        Some(Finding::notice(Area::Store, "free pages", found, advice))
    }
}

/// Returns the damage that SQLite finds in the file.
fn quick_check(file: &Connection) -> Vec<String> {
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

fn damage(said: &[String]) -> Finding {
    match said {
        [] => Finding::fine(Area::Store, "damage", "none was found"),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let advice = "stop all that use the file, keep a copy, and put back a backup; or save what can be read with sqlite3's .recover";
            Finding::wrong(Area::Store, "damage", format!("{first}{more}"), advice)
        }
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

    #[test]
    fn a_large_file_of_which_most_is_free_is_told() {
        let pages = |all, free| Pages { bytes_each: 4_096, all, free }.judged();
        assert_eq!(pages(100, 99), None, "it is small");
        assert_eq!(pages(100_000, 40_000), None, "most of it is used");
        let told = pages(100_000, 60_000).unwrap();
        assert_eq!(told.found, "234 MiB of 390 MiB hold nothing any more");
    }

    #[test]
    fn damage_is_told_with_the_first_thing_that_is_wrong() {
        assert_eq!(damage(&[]).severity, Fine);
        let told = damage(&["a".to_owned(), "b".to_owned()]);
        assert_eq!((told.severity, told.found.as_str()), (Wrong, "a, and 1 more"));
    }
}
