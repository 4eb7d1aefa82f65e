//! A writer of documents without events. Several writers work on the same few documents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::content::{Current, Operation, OperationId, Versioned, WriteAnswer};
use leftfold::{Backoff, DocumentId, Error, Invalid, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::ledger::{CallId, Ledger, Sometimes, Wanted};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

/// The name of the collection.
pub(super) const SHEETS: &str = "sheets";
/// A document that is never deleted.
pub(super) const KEPT: &str = "kept";
/// All documents.
pub(super) const ALL: [&str; 3] = [KEPT, "a", "b"];

/// The maximum number of calls of a writer.
const CALLS: u64 = 20;
/// The maximum number of operations in a call.
const OPERATIONS: u64 = 8;

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sheet {
    /// The last write of the whole document.
    by: String,
    /// The sum of the operations' amounts. `pushed` has their numbers.
    pub(super) count: i64,
    pub(super) pushed: Vec<u64>,
    /// The marks of the changes.
    pub(super) marks: Vec<String>,
    /// Values that operations add and remove.
    tags: Vec<u64>,
    more: More,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct More {
    last: u64,
}

/// Returns a document as the ledger stores it.
pub(super) fn value(sheet: &Sheet) -> Option<Value> {
    serde_json::to_value(sheet).ok()
}

/// A write of a document: an insertion, an update, or a deletion.
#[derive(Clone)]
struct Put {
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

/// The state that all writers share.
#[derive(Default)]
pub(super) struct Common {
    numbers: AtomicU64,
    /// All attempted writes, which any writer may repeat.
    puts: Mutex<Vec<Put>>,
    operations: Mutex<Vec<(DocumentId, Operation)>>,
}

impl Common {
    /// Returns a number above all earlier ones.
    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns all attempted operations.
    pub(super) fn operations(&self) -> Vec<(DocumentId, Operation)> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A writer.
pub(super) struct Writer {
    store: SimStore,
    sheets: Versioned<Sheet, SimStore>,
    dice: Dice,
    common: Arc<Common>,
    /// The last version it has seen of each document.
    seen: BTreeMap<&'static str, Current<Sheet>>,
}

impl Writer {
    pub(super) async fn new(store: &SimStore, dice: Dice, common: &Arc<Common>) -> Result<Self> {
        let store = store.worker(&format!("writer-{}", common.next()));
        let retry = Backoff::default().limit(usize::try_from(dice.below(8)).unwrap_or(0));
        let sheets = Versioned::new(store.clone(), SHEETS).await?;
        let sheets = sheets.env(Clock::new(dice.split(), store.clone())).retry(retry);
        Ok(Self { store, sheets, dice, common: Arc::clone(common), seen: BTreeMap::new() })
    }

    /// Writes until the faults end. A writer that dies is replaced by one that has seen nothing
    /// yet.
    pub(super) async fn write(mut self, healed: watch::Receiver<bool>) -> Result<()> {
        let pause = Duration::from_millis(50 + self.dice.below(500));
        for _ in 0..CALLS {
            sleep(self.dice.time(pause)).await;
            if *healed.borrow() {
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

    fn ledger(&self) -> &Ledger {
        &self.store.shared().contents
    }

    fn begin(&self, wanted: Vec<Wanted>, mark: Option<String>) -> CallId {
        let is_calm = self.store.shared().faults.is_calm();
        let call = self.ledger().begin(&self.store.name, is_calm, wanted, mark);
        self.store.shared().trace.note(|| format!("{} begins call {call}", self.store.name));
        call
    }

    fn violated(&self, violations: Vec<String>) {
        for violation in violations {
            self.store.violated(violation);
        }
    }

    /// Records a failure in the ledger and waits a moment. Returns whether to retry.
    async fn failed(&self, call: CallId, error: &Error) -> bool {
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
    fn name(&self) -> String {
        format!("{}-{}", self.store.name, self.common.next())
    }

    pub(super) async fn get(&mut self, id: &'static str) -> Result<()> {
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

    fn sees(&mut self, id: &'static str, found: Option<Current<Sheet>>) {
        match found {
            Some(found) => self.seen.insert(id, found),
            None => self.seen.remove(id),
        };
    }

    async fn insert(&mut self, id: &'static str) -> Result<()> {
        let by = if self.dice.happens(500) { "anybody".to_owned() } else { self.name() };
        self.put(Put { id, from: None, to: Some(Sheet { by, ..Sheet::default() }) }).await
    }

    /// Returns an update of the last version it has seen of a document.
    fn next_of(&self, id: &'static str) -> Put {
        let from = self.seen.get(id).cloned();
        let sheet = from.as_ref().map(|from| from.document.clone()).unwrap_or_default();
        Put { id, from, to: Some(Sheet { by: self.name(), ..sheet }) }
    }

    async fn update(&mut self, id: &'static str) -> Result<()> {
        if self.dice.happens(600) {
            self.get(id).await?;
        }
        self.put(self.next_of(id)).await
    }

    async fn delete(&mut self, id: &'static str) -> Result<()> {
        let Some(from) = self.seen.get(id).cloned() else { return Ok(()) };
        self.put(Put { id, from: Some(from), to: None }).await
    }

    /// Repeats a random earlier write of any writer.
    async fn put_again(&mut self) -> Result<()> {
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
    async fn write_all(&mut self) -> Result<()> {
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

    /// Reads a document and adds a mark to it, or deletes it.
    pub(super) async fn change(&mut self, id: &'static str) -> Result<()> {
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

    /// Returns an operation with a number above all earlier ones.
    fn operation(&self) -> Result<Operation, Invalid> {
        let number = self.common.next();
        let operation = Operation::new(OperationId::new(number)?);
        match self.dice.below(20) {
            0 => operation.set("more.last", &number),
            1 => operation.push("tags", &(number % 3)),
            // If this removes nothing, the content stays the same.
            2 | 3 => operation.pull("tags", &(number % 3)),
            4 => operation.increment("nothing", 1),
            amount => operation.increment("count", i64::from(amount < 10) + 1)?.push("pushed", &number),
        }
    }

    async fn operate_anew(&self, id: &'static str) -> Result<()> {
        let count = if self.dice.happens(300) { 1 } else { 1 + self.dice.below(OPERATIONS) };
        let mut operations = Vec::new();
        for _ in 0..count {
            let id = if self.dice.happens(200) { self.dice.pick(&ALL).copied().unwrap_or(id) } else { id };
            operations.push((DocumentId::new(id)?, self.operation()?));
        }
        self.common.operations.lock().unwrap_or_else(PoisonError::into_inner).extend(operations.clone());
        if self.dice.happens(100) {
            // Let other operations with higher numbers overtake these.
            sleep(self.dice.time(Duration::from_secs(5))).await;
        }
        self.operate(operations).await
    }

    /// Repeats one or more earlier operations of any writer.
    async fn operate_again(&self) -> Result<()> {
        let mut operations = self.common.operations();
        self.dice.shuffle(&mut operations);
        operations.truncate(usize::try_from(1 + self.dice.below(OPERATIONS)).unwrap_or(1));
        self.operate(operations).await
    }

    /// Applies operations, and in some cases retries after a failure.
    pub(super) async fn operate(&self, operations: Vec<(DocumentId, Operation)>) -> Result<()> {
        for _ in 0..=self.dice.below(3) {
            let wanted = operations.iter().cloned();
            let wanted = wanted.map(|(id, operation)| Wanted::Operate { id, operation }).collect();
            let call = self.begin(wanted, None);
            let answer = match &operations[..] {
                [(id, operation)] => {
                    self.sheets.operate(id.as_str(), operation.clone()).await.map(|is| vec![is])
                }
                _ => self.sheets.operate_all(operations.clone()).await,
            };
            match answer {
                Ok(answers) => {
                    self.store
                        .shared()
                        .trace
                        .note(|| format!("{}: call {call}: {answers:?}", self.store.name));
                    for (at, answer) in answers.iter().enumerate() {
                        self.violated(self.ledger().operated(call, at, answer));
                    }
                    break;
                }
                Err(error) if self.failed(call, &error).await => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}
