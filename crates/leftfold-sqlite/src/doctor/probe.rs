//! Checks whether the file can be read and written now.
//!
//! The probe does not write to a healthy idle file: the file must be unchanged, readable, and have
//! free disk space. Only after a failed write does it try a small one.

use std::sync::Arc;

use leftfold::{Error, Result};

use crate::Sqlite;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

impl Sqlite {
    pub(crate) async fn probe_file(&self) -> Result<()> {
        let inner = &self.inner;
        let (identity, path) = (Arc::clone(&inner.identity), inner.path.clone());
        let looked = tokio::task::spawn_blocking(move || {
            identity
                .check()
                .and_then(|()| room::check(&path))
                .map_err(|failure| failure.to_error("use", &path))
        });
        looked.await.map_err(|error| {
            let message = format!("could not check {}: the process is stopping", inner.path.display());
            Error::new(leftfold::Kind::Stopped, message).with_source(error)
        })??;
        // If all connections are in use, reading works.
        if !inner.readers.are_busy() {
            let read = |file: &rusqlite::Connection| {
                Ok(file.query_row("SELECT count(*) FROM leftfold_meta", [], |row| row.get::<_, i64>(0))?)
            };
            inner.readers.read("read", read).await?;
        }
        if inner.writer.is_in_trouble() {
            inner.writer.run(ProbeWork).await?;
        }
        Ok(())
    }
}

/// A write that grows the file and commits, without changing its contents.
struct ProbeWork;

impl Work for ProbeWork {
    type Answer = Result<()>;

    const DOING: &'static str = "write to";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let file = tx.connection;
        file.execute_batch(
            "SAVEPOINT probe;
             CREATE TABLE leftfold_probe (content BLOB);
             INSERT INTO leftfold_probe VALUES (zeroblob(65536));
             ROLLBACK TO probe;
             RELEASE probe;",
        )?;
        // The file's header may be the application's. This row is Leftfold's, and always exists.
        file.execute("UPDATE leftfold_meta SET value = value WHERE key = 'partitions'", [])?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

#[cfg(target_os = "linux")]
mod room {
    use std::path::Path;

    use leftfold::Kind;
    use rustix::fs::statvfs;

    use crate::error::Failure;

    /// The free space below which a disk counts as full: a commit may not fit any more.
    const LEAST: u64 = 1 << 20;

    pub(super) fn check(path: &Path) -> Result<(), Failure> {
        let Ok(system) = statvfs(path) else { return Ok(()) };
        judge(system.f_bavail.saturating_mul(system.f_frsize))
    }

    fn judge(free: u64) -> Result<(), Failure> {
        if free >= LEAST {
            return Ok(());
        }
        let report = format!("its disk is full: {free} bytes are free");
        Err(Failure::new(Kind::Full, "free disk space, and try again", report))
    }

    #[test]
    fn a_disk_without_room_is_full() {
        judge(LEAST).unwrap();
        assert_eq!(judge(LEAST - 1).unwrap_err().kind(), Kind::Full);
    }
}

/// Skips the check, which is not available on this system.
#[cfg(not(target_os = "linux"))]
mod room {
    use std::path::Path;

    use crate::error::Failure;

    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(super) fn check(_: &Path) -> Result<(), Failure> {
        Ok(())
    }
}
