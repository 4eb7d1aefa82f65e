//! What producers and feeders were told, and whether it is true.

use std::collections::{BTreeMap, HashMap};

use leftfold::log::Limit;
use leftfold::{Log, Partition, Position, Token};
use leftfold_sim::dice::Dice;

use crate::failure::Failure;
use crate::words::Said;

/// What producers and feeders were told.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The ids of each append or delivery that was acknowledged, with where its last event is said to be.
    acknowledged: Vec<(Vec<String>, Token)>,
    refused: Vec<String>,
    /// How many batches of deliveries were answered.
    pub(crate) fed: u64,
    /// How many appends were answered as done before.
    pub(crate) repeated: u64,
    /// Answers that were wrong as they came.
    pub(crate) wrong: Vec<String>,
}

impl Ledger {
    /// Enters what a producer heard; answers with the number of the append, if it was about one.
    pub(crate) fn enter(&mut self, said: Said) -> Option<u64> {
        match said {
            Said::Acknowledged { append, ids, token, again } => {
                self.repeated += u64::from(again);
                match token.parse() {
                    Ok(token) => self.acknowledged.push((ids, token)),
                    Err(error) => self.wrong.push(format!("I11: a token can't be read: {error}")),
                }
                Some(append)
            }
            Said::Refused { append, ids } => {
                self.refused.extend(ids);
                Some(append)
            }
            Said::Fed { batch, logged } => {
                self.fed = self.fed.max(batch + 1);
                for (id, token) in logged {
                    match token.parse() {
                        Ok(token) => self.acknowledged.push((vec![id], token)),
                        Err(error) => self.wrong.push(format!("I11: a token can't be read: {error}")),
                    }
                }
                Some(batch)
            }
            Said::Wrong(what) => {
                self.wrong.push(what);
                None
            }
            Said::Ready | Said::Reached { .. } | Said::Disarmed | Said::Did(_) | Said::Fell { .. } => None,
        }
    }

    /// The tokens of all appends that were acknowledged.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.acknowledged.iter().map(|(_, token)| token.clone()).collect()
    }

    /// One of these tokens, every other time the last: it is the one that a read would miss if anything.
    pub(crate) fn token(&self, dice: &Dice) -> Option<Token> {
        let last = self.acknowledged.len().checked_sub(1)?;
        let at = if dice.happens(500) { last } else { usize::try_from(dice.below(last as u64)).ok()? };
        self.acknowledged.get(at).map(|(_, token)| token.clone())
    }

    /// What of it is not so in the log: each append that was acknowledged is there, in a row, where its token says; none
    /// that was refused is; and none is there in part, whether anybody heard of it or not.
    pub(crate) async fn check(&self, log: &impl Log) -> Result<Vec<String>, Failure> {
        let mut found = HashMap::new();
        for partition in (0..log.partitions()).map(Partition) {
            let all = Limit { events: usize::MAX, bytes: usize::MAX };
            for event in log.read(partition, Position(0), all).await?.events {
                found.insert(event.id.to_string(), event.token());
            }
        }
        let mut wrong = self.wrong.clone();
        for (ids, token) in &self.acknowledged {
            for (id, back) in ids.iter().rev().zip(0..) {
                let there = found.get(id).filter(|at| {
                    at.stream == token.stream
                        && at.revision.0 + back == token.revision.0
                        && (back > 0 || *at == token)
                });
                if there.is_none() {
                    let at = found.get(id).map_or_else(|| "nowhere".to_owned(), |at| format!("at {at}"));
                    wrong.push(format!(
                        "I6: {id} was acknowledged with token {token}, {back} before it, and is {at}"
                    ));
                }
            }
        }
        let there = self.refused.iter().filter(|id| found.contains_key(*id));
        wrong.extend(there.map(|id| format!("I11: {id} was refused and is in the log")));
        let mut appends: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (append, at, count) in found.keys().filter_map(|id| parts(id)) {
            let (seen, last) = appends.entry(append).or_default();
            *seen += 1;
            *last = count.max(at + 1);
        }
        let partly = appends.iter().filter(|(_, (seen, count))| seen != count);
        wrong.extend(partly.map(|(append, (seen, count))| {
            format!("I6: of append {append} only {seen} of {count} events are in the log")
        }));
        Ok(wrong)
    }
}

/// An event's id: which append it is of, and the how manieth of how many.
fn parts(id: &str) -> Option<(&str, u64, u64)> {
    let (rest, count) = id.rsplit_once('-')?;
    let (append, at) = rest.rsplit_once('-')?;
    Some((append, at.parse().ok()?, count.parse().ok()?))
}
