//! The responses that producers and feeders got, and their check against the log.

use std::collections::{BTreeMap, HashMap};

use leftfold::log::Limit;
use leftfold::{Bookmark, Log, Partition, Position};
use leftfold_sim::dice::Dice;

use crate::failure::Failure;
use crate::messages::Message;

/// The responses that producers and feeders got.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The ids of each acknowledged append or delivery, with the bookmark of its last event.
    acknowledged: Vec<(Vec<String>, Bookmark)>,
    refused: Vec<String>,
    /// The number of batches of deliveries that the most advanced feeder has reported.
    pub(crate) fed: u64,
    /// The number of appends that the store reported as duplicates.
    pub(crate) repeated: u64,
    /// Responses that were wrong on arrival.
    pub(crate) wrong: Vec<String>,
}

impl Ledger {
    /// Records a response. Returns the number of its append or batch, if it has one.
    pub(crate) fn enter(&mut self, message: Message) -> Option<u64> {
        match message {
            Message::Acknowledged { append, ids, bookmark, again } => {
                self.repeated += u64::from(again);
                match bookmark.parse() {
                    Ok(bookmark) => self.acknowledged.push((ids, bookmark)),
                    Err(error) => {
                        self.wrong.push(format!("I11: a response has an invalid bookmark: {error}"));
                    }
                }
                Some(append)
            }
            Message::Refused { append, ids } => {
                self.refused.extend(ids);
                Some(append)
            }
            Message::Fed { batch, logged } => {
                self.fed = self.fed.max(batch + 1);
                for (id, bookmark) in logged {
                    match bookmark.parse() {
                        Ok(bookmark) => self.acknowledged.push((vec![id], bookmark)),
                        Err(error) => {
                            self.wrong.push(format!("I11: a response has an invalid bookmark: {error}"));
                        }
                    }
                }
                Some(batch)
            }
            Message::Wrong(what) => {
                self.wrong.push(what);
                None
            }
            Message::Ready
            | Message::Reached { .. }
            | Message::Disarmed
            | Message::Counts(_)
            | Message::Dying { .. } => None,
        }
    }

    /// Returns the bookmarks of all acknowledged appends.
    pub(crate) fn bookmarks(&self) -> Vec<Bookmark> {
        self.acknowledged.iter().map(|(_, bookmark)| bookmark.clone()).collect()
    }

    /// Returns one of these bookmarks, and half of the time the last one: a read would most likely
    /// miss that one.
    pub(crate) fn bookmark(&self, dice: &Dice) -> Option<Bookmark> {
        let last = self.acknowledged.len().checked_sub(1)?;
        let at = if dice.happens(500) { last } else { usize::try_from(dice.below(last as u64)).ok()? };
        self.acknowledged.get(at).map(|(_, bookmark)| bookmark.clone())
    }

    /// Checks the responses against the log and returns the violations.
    ///
    /// Each acknowledged append must be there, contiguous, at its bookmark. No rejected append may
    /// be there. No append may be there in part, with or without a response.
    pub(crate) async fn check(&self, log: &impl Log) -> Result<Vec<String>, Failure> {
        let mut found = HashMap::new();
        for partition in (0..log.partitions()).map(Partition) {
            let all = Limit { events: usize::MAX, bytes: usize::MAX };
            for event in log.read(partition, Position(0), all).await?.events {
                found.insert(event.id.to_string(), event.bookmark());
            }
        }
        let mut wrong = self.wrong.clone();
        for (ids, bookmark) in &self.acknowledged {
            for (id, back) in ids.iter().rev().zip(0..) {
                let there = found.get(id).filter(|at| {
                    at.stream == bookmark.stream
                        && at.revision.0 + back == bookmark.revision.0
                        && (back > 0 || *at == bookmark)
                });
                if there.is_none() {
                    let at = found.get(id).map_or_else(|| "nowhere".to_owned(), |at| format!("at {at}"));
                    wrong.push(format!(
                        "I6: {id} was acknowledged with bookmark {bookmark}, {back} before it, and is {at}"
                    ));
                }
            }
        }
        let there = self.refused.iter().filter(|id| found.contains_key(*id));
        wrong.extend(there.map(|id| format!("I11: {id} was rejected and is in the log")));
        let mut appends: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (append, at, count) in found.keys().filter_map(|id| parts(id)) {
            let (seen, last) = appends.entry(append).or_default();
            *seen += 1;
            *last = count.max(at + 1);
        }
        let partly = appends.iter().filter(|(_, (seen, count))| seen != count);
        wrong.extend(partly.map(|(append, (seen, count))| {
            format!("I6: only {seen} of the {count} events of append {append} are in the log")
        }));
        Ok(wrong)
    }
}

/// Parses an event's id: its append, its index in the append, and the size of the append.
fn parts(id: &str) -> Option<(&str, u64, u64)> {
    let (rest, count) = id.rsplit_once('-')?;
    let (append, at) = rest.rsplit_once('-')?;
    Some((append, at.parse().ok()?, count.parse().ok()?))
}
