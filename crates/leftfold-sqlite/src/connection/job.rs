//! Work of any type with its waiting caller, isolated from other work by a savepoint.

use std::path::Path;

use leftfold::Kind;
use tokio::sync::oneshot;

use super::work::{Ran, Tx, Work};
use crate::error::Failure;

/// Work of any type, with its waiting caller.
pub(super) trait Job: Send {
    fn bytes(&self) -> usize;
    fn run(&mut self, tx: &mut Tx<'_>, path: &Path) -> Result<(), Broken>;
    fn fail(&mut self, failure: &Failure, path: &Path);
    fn answer(self: Box<Self>);
}

/// The error of a job that broke the whole transaction.
pub(super) struct Broken;

/// The work of a caller that waits for its answer.
pub(super) struct Pending<W: Work> {
    pub(super) work: W,
    pub(super) answer: Option<W::Answer>,
    pub(super) reply: oneshot::Sender<W::Answer>,
}

impl<W: Work> Job for Pending<W> {
    fn bytes(&self) -> usize {
        self.work.bytes()
    }

    fn run(&mut self, tx: &mut Tx<'_>, path: &Path) -> Result<(), Broken> {
        let connection = tx.connection;
        let has_steps = self.work.has_steps();
        let savepoint = |sql| -> Result<(), Failure> {
            // On some errors, such as a full disk, SQLite rolls back the whole transaction by
            // itself.
            if has_steps && !connection.is_autocommit() {
                connection.prepare_cached(sql)?.execute([])?;
            }
            Ok(())
        };
        let ran = savepoint("SAVEPOINT work").and_then(|()| self.work.run(tx));
        let undone = match &ran {
            Ok(Ran::Keep(_)) => Ok(()),
            Ok(Ran::Undo(_)) | Err(_) => savepoint("ROLLBACK TO work"),
        };
        let ended = undone.and_then(|()| savepoint("RELEASE work"));
        let broken = ended.is_err() || connection.is_autocommit();
        match ran.and_then(|ran| ended.map(|()| ran)) {
            Ok(_) if broken => self.fail(&Failure::damaged("the transaction ended by itself"), path),
            Ok(Ran::Keep(answer) | Ran::Undo(answer)) => self.answer = Some(answer),
            Err(failure) => {
                if !matches!(failure.kind(), Kind::Invalid | Kind::Conflict) {
                    tx.trouble = Some(failure.clone());
                }
                self.fail(&failure, path);
            }
        }
        if broken { Err(Broken) } else { Ok(()) }
    }

    fn fail(&mut self, failure: &Failure, path: &Path) {
        self.answer = Some(W::failed(failure.to_error(W::DOING, path)));
    }

    fn answer(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // The caller may have stopped waiting.
            let _ = self.reply.send(answer);
        }
    }
}
