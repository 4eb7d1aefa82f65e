//! Writes of whole documents.

use std::sync::PoisonError;

use leftfold::content::{Current, WriteAnswer};
use leftfold::{DocumentId, Invalid, Result};

use super::actor::Writer;
use crate::contents::ledger::{CallId, Wanted};
use crate::contents::sheet::{ALL, Sheet, value};

/// A write of a document: an insertion, an update, or a deletion.
#[derive(Clone)]
pub(super) struct Put {
    id: &'static str,
    from: Option<Current<Sheet>>,
    to: Option<Sheet>,
}

impl Put {
    fn wanted(&self) -> Result<Wanted, Invalid> {
        let from = self.from.as_ref().and_then(|from| value(&from.document));
        Ok(Wanted::Write { id: DocumentId::new(self.id)?, from, to: self.to.as_ref().and_then(value) })
    }
}

impl Writer {
    pub(super) async fn insert(&mut self, id: &'static str) -> Result<()> {
        let by = if self.dice.happens(500) { "anybody".to_owned() } else { self.name() };
        self.put(Put { id, from: None, to: Some(Sheet { by, ..Sheet::default() }) }).await
    }

    /// Returns an update of the last version it has seen of a document.
    fn next_of(&self, id: &'static str) -> Put {
        let from = self.seen.get(id).cloned();
        let sheet = from.as_ref().map(|from| from.document.clone()).unwrap_or_default();
        Put { id, from, to: Some(Sheet { by: self.name(), ..sheet }) }
    }

    pub(super) async fn update(&mut self, id: &'static str) -> Result<()> {
        if self.dice.happens(600) {
            self.get(id).await?;
        }
        self.put(self.next_of(id)).await
    }

    pub(super) async fn delete(&mut self, id: &'static str) -> Result<()> {
        let Some(from) = self.seen.get(id).cloned() else { return Ok(()) };
        self.put(Put { id, from: Some(from), to: None }).await
    }

    /// Repeats a random earlier write of any writer.
    pub(super) async fn put_again(&mut self) -> Result<()> {
        let put = {
            let puts = self.common.puts.lock().unwrap_or_else(PoisonError::into_inner);
            self.dice.pick(&puts).cloned()
        };
        match put {
            Some(put) => self.put(put).await,
            None => Ok(()),
        }
    }

    /// Writes, and in some cases retries after a failure.
    async fn put(&mut self, put: Put) -> Result<()> {
        self.common.puts.lock().unwrap_or_else(PoisonError::into_inner).push(put.clone());
        for _ in 0..=self.dice.below(3) {
            let call = self.begin(vec![put.wanted()?], None);
            let answer = match (&put.from, &put.to) {
                (None, Some(to)) => self.sheets.insert(put.id, to).await,
                (Some(from), Some(to)) => self.sheets.update(put.id, from.version, to).await,
                (Some(from), None) => self.sheets.delete(put.id, from.version).await,
                (None, None) => return Ok(()),
            };
            match answer {
                Ok(answer) => {
                    self.answered(call, 0, put, answer);
                    break;
                }
                Err(error) if self.failed(call, &error).await => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn answered(&mut self, call: CallId, at: usize, put: Put, answer: WriteAnswer<Sheet>) {
        self.store.shared().trace.note(|| format!("{}: call {call}: {answer:?}", self.store.name));
        self.violated(self.ledger().wrote(call, at, &answer));
        let found = match answer {
            WriteAnswer::Applied(version) | WriteAnswer::AlreadyApplied(version) => {
                put.to.map(|document| Current { version, document })
            }
            WriteAnswer::Conflict(found) => found,
            WriteAnswer::Impossible(_) => None,
        };
        self.sees(put.id, found);
    }

    /// Writes all documents in one call.
    pub(super) async fn write_all(&mut self) -> Result<()> {
        let puts = ALL.map(|id| self.next_of(id));
        let wanted = puts.iter().map(Put::wanted).collect::<Result<_, _>>()?;
        let call = self.begin(wanted, None);
        let writes = puts
            .iter()
            .filter_map(|put| Some((put.id, put.from.as_ref().map(|from| from.version), put.to.as_ref()?)));
        match self.sheets.write_all(writes).await {
            Ok(answers) => {
                for (at, (put, answer)) in puts.into_iter().zip(answers).enumerate() {
                    self.answered(call, at, put, answer);
                }
            }
            Err(error) => _ = self.failed(call, &error).await,
        }
        Ok(())
    }
}
