//! A writer, its calls, and its death.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leftfold::content::{Current, Versioned};
use leftfold::{Backoff, DocumentId, Error, Result};
use tokio::sync::watch;
use tokio::time::sleep;

use super::common::Common;
use crate::clock::Clock;
use crate::contents::ledger::{CallId, Ledger, Sometimes, Wanted};
use crate::contents::sheet::{ALL, KEPT, SHEETS, Sheet};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

/// The maximum number of calls of a writer.
const CALLS: u64 = 20;
/// A writer.
pub(in crate::contents) struct Writer {
    pub(super) store: SimStore,
    pub(super) sheets: Versioned<Sheet, SimStore>,
    pub(super) dice: Dice,
    pub(super) common: Arc<Common>,
    /// The last version it has seen of each document.
    pub(super) seen: BTreeMap<&'static str, Current<Sheet>>,
}

impl Writer {
    pub(in crate::contents) async fn new(store: &SimStore, dice: Dice, common: &Arc<Common>) -> Result<Self> {
        let store = store.worker(&format!("writer-{}", common.next()));
        let retry = Backoff::default().limit(usize::try_from(dice.below(8)).unwrap_or(0));
        let sheets = Versioned::new(store.clone(), SHEETS).await?;
        let sheets = sheets.env(Clock::new(dice.split(), store.clone())).retry(retry);
        Ok(Self { store, sheets, dice, common: Arc::clone(common), seen: BTreeMap::new() })
    }

    /// Writes until the faults end. A writer that dies is replaced by one that has seen nothing
    /// yet.
    pub(in crate::contents) async fn write(mut self, faults_ended: watch::Receiver<bool>) -> Result<()> {
        let pause = Duration::from_millis(50 + self.dice.below(500));
        for _ in 0..CALLS {
            sleep(self.dice.time(pause)).await;
            if *faults_ended.borrow() {
                break;
            }
            let fuse = self.store.fuse_of();
            if self.store.strikes(Fault::Crash) {
                fuse.light(self.dice.below(12));
            }
            tokio::select! { biased;
                () = fuse.blown() => {
                    self.store.shared().trace.note(|| format!("{} is dead", self.store.name));
                    self.ledger().happened(Sometimes::Died);
                    self = Self::new(&self.store, self.dice.split(), &self.common).await?;
                }
                done = self.call() => done?,
            }
        }
        Ok(())
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.store.shared().contents
    }

    pub(super) fn begin(&self, wanted: Vec<Wanted>, mark: Option<String>) -> CallId {
        let is_calm = self.store.shared().faults.is_calm();
        let call = self.ledger().begin(&self.store.name, is_calm, wanted, mark);
        self.store.shared().trace.note(|| format!("{} begins call {call}", self.store.name));
        call
    }

    pub(super) fn violated(&self, violations: Vec<String>) {
        for violation in violations {
            self.store.violated(violation);
        }
    }

    /// Records a failure in the ledger and waits a moment. Returns whether to retry.
    pub(super) async fn failed(&self, call: CallId, error: &Error) -> bool {
        self.store.shared().trace.note(|| format!("{}: call {call} failed: {error}", self.store.name));
        self.violated(self.ledger().failed(call, error));
        sleep(self.dice.time(Duration::from_secs(2))).await;
        error.is_transient()
    }

    /// Makes a random call.
    async fn call(&mut self) -> Result<()> {
        let dice = &self.dice;
        let id = if dice.happens(500) { KEPT } else { dice.pick(&ALL).copied().unwrap_or(KEPT) };
        match dice.below(100) {
            0..10 => self.get(id).await,
            10..20 => self.insert(id).await,
            20..38 => self.update(id).await,
            38..58 => self.change(id).await,
            58..63 => self.write_all().await,
            63..66 if id != KEPT => self.delete(id).await,
            63..90 => self.operate_anew(id).await,
            90..94 => self.put_again().await,
            _ => self.operate_again().await,
        }
    }

    /// Returns a text that no other writer uses.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.store.name, self.common.next())
    }

    pub(in crate::contents) async fn get(&mut self, id: &'static str) -> Result<()> {
        let call = self.begin(Vec::new(), None);
        match self.sheets.get(id).await {
            Ok(found) => {
                self.violated(self.ledger().read(call, &DocumentId::new(id)?, found.as_ref()));
                self.sees(id, found);
            }
            Err(error) => _ = self.failed(call, &error).await,
        }
        Ok(())
    }

    pub(super) fn sees(&mut self, id: &'static str, found: Option<Current<Sheet>>) {
        match found {
            Some(found) => self.seen.insert(id, found),
            None => self.seen.remove(id),
        };
    }
}
