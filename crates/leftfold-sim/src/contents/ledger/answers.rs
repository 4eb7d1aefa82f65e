//! Checks of the responses to writers.

use leftfold::content::{Counted, Current, Operated, REMEMBERED, Version, WriteAnswer};
use leftfold::{DocumentId, Error, Json, Kind};
use serde_json::Value;

use super::calls::{Call, CallId, Wanted};
use super::history::{higher, shown};
use super::sometimes::Sometimes;
use super::state::{Ledger, State};
use crate::contents::naive;
use crate::contents::sheet::{Sheet, value};

impl State {
    /// Returns whether a document satisfied `is` at some time during a call.
    fn was(&self, call: CallId, id: &DocumentId, mut is: impl FnMut(Option<&Value>) -> bool) -> bool {
        match self.documents.get(id) {
            Some(history) => history.since(self.calls[call].began).any(is),
            None => is(None),
        }
    }
}

/// Returns the version of some content.
fn version(content: Option<&Value>) -> Option<Version> {
    Version::of(&Json::of(content?).ok()?, &Counted::All).ok()
}

impl Ledger {
    /// Checks the response to one write of a call.
    pub(in crate::contents) fn wrote(
        &self,
        call: CallId,
        at: usize,
        answer: &WriteAnswer<Sheet>,
    ) -> Vec<String> {
        let mut state = self.state();
        let of = &state.calls[call];
        let Some(Wanted::Write { id, from, to }) = of.wanted.get(at) else { return Vec::new() };
        let (has_written, is_certain) = (of.wrote(id), of.doubts == 0);
        let made = version(to.as_ref().or(from.as_ref()));
        let mut wrong = Vec::new();
        let mut check = |is_wrong: bool, fault: &str| {
            if is_wrong {
                wrong.push(format!("I11: the response to call {call} for {id} is {answer:?}, {fault}"));
            }
        };
        let mut happened = None;
        match answer {
            WriteAnswer::Applied(version) => {
                check(!has_written, "and the call did not write it");
                check(Some(*version) != made, "which has the wrong version");
            }
            WriteAnswer::AlreadyApplied(version) => {
                happened = Some(Sometimes::Already);
                check(!state.was(call, id, |body| body == to.as_ref()), "which was never its content");
                check(is_certain && has_written, "and the call wrote it");
                check(Some(*version) != made, "which has the wrong version");
            }
            WriteAnswer::Conflict(found) => {
                happened = Some(Sometimes::Conflict);
                let is = found.as_ref().and_then(|found| value(&found.document));
                check(!state.was(call, id, |body| body == is.as_ref()), "which was never its content");
                check(is == *to, "which is the new content");
                check(is == *from, "which is the expected content");
                check(is_certain && has_written, "and the call wrote it");
                let found = found.as_ref().map(|found| found.version);
                check(found != version(is.as_ref()), "which has the wrong version");
            }
            WriteAnswer::Impossible(_) => check(true, "which a write can't be"),
        }
        if let Some(happened) = happened {
            state.sometimes[happened as usize] += 1;
        }
        wrong
    }

    /// Checks the response to a change of a document.
    pub(in crate::contents) fn changed(
        &self,
        call: CallId,
        id: &DocumentId,
        now: Option<&Current<Sheet>>,
    ) -> Vec<String> {
        let state = self.state();
        let (of, is) = (&state.calls[call], now.and_then(|now| value(&now.document)));
        let mut wrong = Vec::new();
        if !(of.is_misled && is.is_none() || state.was(call, id, |body| body == is.as_ref())) {
            let is = shown(is.as_ref());
            wrong.push(format!("I11: the response to call {call} is that {id} is {is}, which it never was"));
        }
        if is.is_some() && !of.wrote(id) {
            wrong.push(format!("I11: the response to call {call} is that it changed {id}, and it did not"));
        }
        wrong
    }

    /// Checks the response to a read of a document.
    pub(in crate::contents) fn read(
        &self,
        call: CallId,
        id: &DocumentId,
        found: Option<&Current<Sheet>>,
    ) -> Vec<String> {
        let state = self.state();
        let is = found.and_then(|found| value(&found.document));
        let mut wrong = Vec::new();
        if !state.calls[call].is_misled && !state.was(call, id, |body| body == is.as_ref()) {
            wrong.push(format!("I11: call {call} read {id} as {}, which it never was", shown(is.as_ref())));
        }
        if found.map(|found| found.version) != version(is.as_ref()) {
            wrong.push(format!("I11: call {call} read {id} with the wrong version"));
        }
        wrong
    }

    /// Checks the response to one operation of a call.
    pub(in crate::contents) fn operated(&self, call: CallId, at: usize, answer: &Operated) -> Vec<String> {
        let mut state = self.state();
        let of = &state.calls[call];
        let Some(Wanted::Operate { id, operation }) = of.wanted.get(at) else { return Vec::new() };
        let number = operation.id().get();
        let has_applied = of.applied(id, number);
        let lives = || state.documents.get(id).into_iter().flat_map(|history| history.lives_since(of.began));
        let (is_true, happened) = match answer {
            Operated::Applied => (has_applied, None),
            Operated::AlreadyApplied => {
                (lives().any(|applied| applied.contains(&number)), Some(Sometimes::Repeated))
            }
            Operated::TooOld => {
                (lives().any(|applied| higher(applied, number) >= REMEMBERED), Some(Sometimes::TooOld))
            }
            Operated::Missing => (state.was(call, id, |body| body.is_none()), Some(Sometimes::Missing)),
            Operated::Impossible(_) => {
                let is_impossible = |body: Option<&Value>| {
                    body.is_some_and(|body| naive::operated(body, operation).is_none())
                };
                (state.was(call, id, is_impossible), Some(Sometimes::Impossible))
            }
        };
        let response =
            format!("I11: the response to operation {number} of call {call} on {id} is {answer:?}");
        let mut wrong = Vec::new();
        if !is_true {
            wrong.push(format!("{response}, which is false"));
        }
        if *answer != Operated::Applied && of.doubts == 0 && has_applied {
            wrong.push(format!("{response}, and the call applied it"));
        }
        let known = (id.clone(), number);
        if matches!(answer, Operated::Applied | Operated::AlreadyApplied) {
            state.calls[call].known.push(known);
        }
        if let Some(happened) = happened {
            state.sometimes[happened as usize] += 1;
        }
        wrong
    }

    /// Checks a failure of a call.
    pub(in crate::contents) fn failed(&self, call: CallId, error: &Error) -> Vec<String> {
        let mut state = self.state();
        let changes = state.changes;
        let of = &mut state.calls[call];
        of.failed = Some(error.kind());
        let mut wrong: Vec<_> = of.denied(call).into_iter().collect();
        let is_refused = error.kind() == Kind::Invalid;
        let is_overtaken = error.is_conflict() && changes > of.began;
        if of.is_calm && !is_refused && !is_overtaken {
            wrong.push(format!("I10: call {call} failed without faults: {error}"));
        }
        if error.is_unknown() && of.doubts == 0 && of.effects.is_empty() {
            wrong.push(format!("I11: call {call} failed as unknown, and its outcome is known: {error}"));
        }
        if is_refused && of.doubts == 0 && !of.effects.is_empty() {
            wrong.push(format!("I11: call {call} was rejected, and changed something: {error}"));
        }
        wrong
    }
}

impl Call {
    /// Returns a violation if the call has changed something although its error means that nothing
    /// was written.
    pub(super) fn denied(&self, call: CallId) -> Option<String> {
        let kind = self.failed.filter(|kind| matches!(kind, Kind::Unavailable | Kind::Conflict))?;
        let (id, _) = self.effects.first()?;
        Some(format!(
            "I11: call {call} failed as {kind:?}, which means that nothing was written, and it changed {id}"
        ))
    }
}
