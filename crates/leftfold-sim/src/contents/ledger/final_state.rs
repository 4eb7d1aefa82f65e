//! Checks of the final state.

use std::collections::BTreeMap;

use leftfold::content::{Amount, FieldOperation, Operation};
use leftfold::{DocumentId, Json};

use super::calls::Wanted;
use super::history::shown;
use super::state::{Ledger, State};
use crate::contents::naive;
use crate::contents::sheet::Sheet;

impl Ledger {
    /// Returns the violations in the final state, which has these documents.
    pub(in crate::contents) fn check_end(
        &self,
        kept: &DocumentId,
        stored: &[(DocumentId, Json)],
    ) -> Vec<String> {
        let state = self.state();
        let mut wrong: Vec<_> =
            state.calls.iter().enumerate().filter_map(|(call, of)| of.denied(call)).collect();
        let truth: BTreeMap<_, _> = stored.iter().map(|(id, body)| (id, naive::parsed(body))).collect();
        for (id, history) in &state.documents {
            let is = truth.get(id).and_then(Option::as_ref);
            if is != history.body() {
                let (is, was) = (shown(is), shown(history.body()));
                wrong.push(format!("I14: {id} is {is} in the end, and was last written as {was}"));
            }
        }
        let sheet = truth.get(kept).cloned().flatten().and_then(|is| serde_json::from_value(is).ok());
        match sheet {
            Some(sheet) => wrong.extend(state.counts(kept, &sheet)),
            None => wrong.push(format!("I14: {kept} is missing in the end, and was never deleted")),
        }
        wrong
    }
}

/// Returns the amount that an operation adds to the count.
fn amount(operation: &Operation) -> Option<i64> {
    operation.steps().find_map(|(path, step)| match (path, step) {
        ("count", FieldOperation::Increment(Amount::Whole(amount))) => Some(*amount),
        _ => None,
    })
}

impl State {
    /// Checks a document that is never deleted and whose lists never shrink. It must contain every
    /// change exactly as often as the responses say.
    fn counts(&self, kept: &DocumentId, sheet: &Sheet) -> Vec<String> {
        let (mut amounts, mut wrong) = (BTreeMap::new(), Vec::new());
        for wanted in self.calls.iter().flat_map(|call| &call.wanted) {
            if let Wanted::Operate { id, operation } = wanted
                && id == kept
                && let Some(amount) = amount(operation)
            {
                amounts.insert(operation.id().get(), amount);
            }
        }
        let mut pushed = sheet.pushed.clone();
        pushed.sort_unstable();
        if let Some([twice, ..]) = pushed.windows(2).find(|pair| pair[0] == pair[1]) {
            wrong.push(format!("I15: operation {twice} is in {kept} twice"));
        }
        let sum: i64 = pushed.iter().filter_map(|number| amounts.get(number)).sum();
        if sum != sheet.count {
            wrong.push(format!(
                "I15: the count of {kept} is {}, and its operations add up to {sum}",
                sheet.count
            ));
        }
        for (id, number) in self.calls.iter().flat_map(|call| &call.known) {
            if id == kept && amounts.contains_key(number) && pushed.binary_search(number).is_err() {
                wrong.push(format!("I15: operation {number} was reported as applied, and is not in {kept}"));
            }
        }
        for (call, of) in self.calls.iter().enumerate() {
            let Some(mark) = &of.mark else { continue };
            let wrote = of.effects.iter().filter(|(id, _)| id == kept).count();
            let times = sheet.marks.iter().filter(|one| *one == mark).count();
            if wrote != times {
                wrong.push(format!(
                    "I14: call {call} changed {kept} {wrote} times, and is in it {times} times"
                ));
            }
        }
        wrong
    }
}
