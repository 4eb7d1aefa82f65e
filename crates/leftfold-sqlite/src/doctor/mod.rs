//! The doctor's view of a file: its settings, its pages, its tables, and the free space.

mod clock;
mod file;
mod pages;
mod probe;
mod schema;
mod settings;

use leftfold::inspect::doctor::{self, Area, Examine, Finding};
use leftfold::{Collection, Result};

use self::pages::Pages;
use self::settings::SettingsWork;
use crate::Sqlite;
use crate::clock::{read, step};

/// A file larger than 512 MiB is not checked for damage, because that reads the whole file. The
/// finding tells how to run the check.
impl Examine for Sqlite {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let (readers, path) = (&self.inner.readers, &self.inner.path);
        let mut findings =
            vec![Finding::fine(Area::Versions, "SQLite", format!("version {}", rusqlite::version()))];
        if let Err(failure) = self.inner.identity.check() {
            findings.push(Finding::failed(Area::Store, "file", &failure.to_error("use", path)));
        }
        match self.inner.writer.run(SettingsWork).await {
            Ok(settings) => findings.extend(settings.judged()),
            Err(error) => findings.push(Finding::failed(Area::Store, "writing", &error)),
        }
        let pages = readers.read("count the pages of", Pages::read).await?;
        findings.extend(pages.judged());
        if pages.is_checked() {
            let found = readers.read("check", |file| Ok(pages::quick_check(file))).await?;
            findings.push(pages::damage(&found));
        } else {
            findings.push(pages.unchecked(path));
        }
        findings.extend(file::look(path, pages.bytes()));
        let (now, step) = readers.read("read the time in", |file| Ok((read(file)?, step(file)?))).await?;
        findings.push(clock::judge(now, step));
        findings.extend(readers.read("check the tables of", schema::look).await?);
        findings.extend(doctor::reactions(self).await);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        self.inner.readers.read("list the collections of", schema::collections).await
    }

    async fn probe(&self) -> Result<()> {
        self.probe_file().await
    }
}
