//! Changes of a document by a function: read, change, write, and again if it conflicts.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::retry::doubted;
use super::{Current, Versioned, WriteAnswer};
use crate::content::store::Contents;
use crate::error::{Error, Kind, Result};
use crate::mutant;

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Reads a document, changes it with a function, and writes it; retries if others change it
    /// first. The function receives the current document and returns the new one; `None` means no
    /// document. Returns the document after the change.
    ///
    /// If the store becomes unavailable right after a write, and others write meanwhile, the
    /// outcome of that write is unknown. Then the function is called once more. To apply a change
    /// exactly once even then, [operate](Self::operate).
    pub async fn change(
        &self,
        id: &str,
        mut change: impl FnMut(Option<D>) -> Result<Option<D>>,
    ) -> Result<Option<Current<D>>> {
        let mut delays = self.retry.delays(self.env.random());
        let mut was_in_doubt = false;
        loop {
            // The document from before a wait may be outdated.
            let current = self.get(id).await.map_err(|error| doubted(error, was_in_doubt))?;
            let from = current.as_ref().map(|current| current.version);
            let to = change(current.map(|current| current.document))?;
            let wanted = match (from, &to) {
                (None, None) => return Ok(None),
                (Some(from), None) => Self::deletion(id, from)?,
                (from, Some(to)) => self.wanted(id, from, to)?,
            };
            let is_change = from != Some(wanted.made.to) || to.is_none();
            let all = self.write(vec![wanted]).await;
            let (mut answers, is_in_doubt) = all.map_err(|error| doubted(error, was_in_doubt))?;
            was_in_doubt |= is_in_doubt;
            match answers.pop() {
                Some(WriteAnswer::Applied(version)) => {
                    return Ok(to.map(|document| Current { version, document }));
                }
                // Either this write was ours, or it changes nothing. Otherwise another caller made
                // the same change, and ours is still missing.
                Some(WriteAnswer::AlreadyApplied(version)) if is_in_doubt || !is_change => {
                    mutant!(ChangeAgain => if is_change { continue });
                    return Ok(to.map(|document| Current { version, document }));
                }
                Some(
                    WriteAnswer::AlreadyApplied(_) | WriteAnswer::Conflict(_) | WriteAnswer::Impossible(_),
                )
                | None => {}
            }
            let Some(delay) = delays.next() else {
                let message =
                    format!("changing {id} in {}: other writers keep changing it; try again", self.name());
                return Err(doubted(Error::new(Kind::Conflict, message), was_in_doubt));
            };
            sleep(delay).await;
        }
    }
}
