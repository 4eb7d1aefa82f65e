//! Changes of documents by a function.

use leftfold::{DocumentId, Result};

use super::actor::Writer;
use crate::contents::ledger::Wanted;
use crate::contents::sheet::{KEPT, Sheet, value};

impl Writer {
    /// Reads a document and adds a mark to it, or deletes it.
    pub(in crate::contents) async fn change(&mut self, id: &'static str) -> Result<()> {
        let (document, mark) = (DocumentId::new(id)?, self.name());
        let deletes = id != KEPT && self.dice.happens(100);
        let call = self.begin(Vec::new(), Some(mark.clone()));
        let (ledger, named) = (self.ledger(), &document);
        let change = |sheet: Option<Sheet>| {
            let from = sheet.as_ref().and_then(value);
            let mut to = sheet.unwrap_or_default();
            to.marks.push(mark.clone());
            let to = Some(to).filter(|_| !deletes);
            ledger.wants(call, Wanted::Write { id: named.clone(), from, to: to.as_ref().and_then(value) });
            Ok(to)
        };
        match self.sheets.change(id, change).await {
            Ok(now) => {
                self.violated(self.ledger().changed(call, &document, now.as_ref()));
                self.sees(id, now);
            }
            Err(error) => _ = self.failed(call, &error).await,
        }
        Ok(())
    }
}
