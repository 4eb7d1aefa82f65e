//! Checks that documents and checkpoints never go back.

use std::collections::HashSet;

use leftfold::documents::Record;
use leftfold::{Collection, Mark, Position};

use super::collections::{folded, projection};
use super::fold::listed;
use super::state::{Passed, State};

impl State {
    /// Checks that a document never loses an event it has folded.
    pub(super) fn check_progress(&mut self, collection: &Collection, record: &Record) {
        let (now, mark) = (listed(record), &record.header.mark);
        let key = (collection.stored(0), record.id.clone());
        let (before, had) = self.documents.insert(key, (mark.clone(), now.clone())).unwrap_or_default();
        if !mark.covers(&before) {
            self.violations
                .push(format!("I2: the mark of {} in {collection} fell from {before} to {mark}", record.id));
        }
        let Some(projection) = projection(collection) else { return };
        let steps = self.routed.get(&(projection, record.id.clone())).map(Vec::as_slice).unwrap_or_default();
        let cleared = steps.iter().rposition(|step| step.clears).unwrap_or(0);
        let kept: HashSet<_> = now.iter().collect();
        let lost = had
            .iter()
            .find(|name| !kept.contains(name) && !steps[..cleared].iter().any(|step| step.name == **name));
        if let Some(lost) = lost {
            self.violations
                .push(format!("I2: {} in {collection} had folded {lost} and no longer has", record.id));
        }
    }

    /// Advances a checkpoint and returns the events it passed.
    pub(super) fn advance_checkpoint(&mut self, projection: &Collection, now: &Mark) -> Vec<Passed> {
        let now = &folded(now);
        let before = self.checkpoints.insert(projection.stored(0), now.clone()).unwrap_or_default();
        if !now.covers(&before) {
            self.violations.push(format!("I2: checkpoint of {projection} fell from {before} to {now}"));
        }
        let Some(name) = self::projection(projection) else { return Vec::new() };
        let lanes = now.lanes().filter_map(|(lane, end)| Some((lane.partition()?, Position(end))));
        let passed = lanes.flat_map(|(partition, end)| {
            let steps = self.passed.get(&(name, partition)).map(Vec::as_slice).unwrap_or_default();
            let begin = steps.partition_point(|(step, _)| step.position <= before.position(partition));
            steps[begin..].iter().take_while(move |(step, _)| step.position <= end)
        });
        passed.cloned().collect()
    }
}
