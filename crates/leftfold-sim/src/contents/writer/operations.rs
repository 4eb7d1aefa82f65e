//! Operations on documents.

use std::sync::PoisonError;
use std::time::Duration;

use leftfold::content::{Operation, OperationId};
use leftfold::{DocumentId, Invalid, Result};
use tokio::time::sleep;

use super::actor::Writer;
use crate::contents::ledger::Wanted;
use crate::contents::sheet::ALL;

/// The maximum number of operations in a call.
const OPERATIONS: u64 = 8;

impl Writer {
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

    pub(super) async fn operate_anew(&self, id: &'static str) -> Result<()> {
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
    pub(super) async fn operate_again(&self) -> Result<()> {
        let mut operations = self.common.operations();
        self.dice.shuffle(&mut operations);
        operations.truncate(usize::try_from(1 + self.dice.below(OPERATIONS)).unwrap_or(1));
        self.operate(operations).await
    }

    /// Applies operations, and in some cases retries after a failure.
    pub(in crate::contents) async fn operate(&self, operations: Vec<(DocumentId, Operation)>) -> Result<()> {
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
