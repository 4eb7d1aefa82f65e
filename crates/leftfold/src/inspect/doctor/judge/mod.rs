//! Judgements of the doctor: thresholds and advice, as pure functions over plain values.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::{Area, Finding, span};
use crate::event::DocumentId;
use crate::inspect::ProjectionStatus;
use crate::json::JsonFault;
use crate::react::{Depth, DocumentSource, Registered, State};
use crate::sequence;

/// The clock differences from which the doctor warns, and from which it is an error.
const SKEW: Duration = Duration::from_secs(2);
const WRONG_SKEW: Duration = Duration::from_mins(1);
/// The times for which an event may be held before the doctor warns, and before it is an error.
const HELD: Duration = Duration::from_mins(5);
const WRONG_HELD: Duration = Duration::from_hours(1);
/// The times for which a task may be due before the doctor warns, and before it is an error.
const DUE: Duration = Duration::from_mins(1);
const WRONG_DUE: Duration = Duration::from_mins(10);
/// The number of events that a projection with an active worker may be behind before the doctor
/// mentions it.
const BEHIND: u64 = 100_000;

/// Judges the difference between this machine's clock and a store's, both read at about the same
/// time.
pub fn clock(ours: Timestamp, theirs: Timestamp) -> Finding {
    let apart = ours.duration_since(theirs);
    let by = apart.unsigned_abs();
    let subject = "this machine and the store";
    if by < SKEW {
        return Finding::fine(Area::Clock, subject, format!("the clocks differ by {}", span(by)));
    }
    let which = if apart.is_negative() { "behind" } else { "ahead of" };
    let found = format!("this machine's clock is {} {which} the store's", span(by));
    let advice = "synchronize both (NTP); documents stay correct, but times in events, filters with $now, \
        and waiting times are off";
    if by < WRONG_SKEW {
        Finding::warning(Area::Clock, subject, found, advice)
    } else {
        Finding::wrong(Area::Clock, subject, found, advice)
    }
}

/// Judges whether the newest event of the log has a time in the future.
pub(super) fn newest(newest: Option<Timestamp>, now: Timestamp) -> Finding {
    let subject = "the newest event";
    let Some(newest) = newest else { return Finding::fine(Area::Clock, subject, "there is none yet") };
    let ahead = newest.duration_since(now);
    match Duration::try_from(ahead) {
        Ok(ahead) if ahead >= WRONG_SKEW => Finding::warning(
            Area::Clock,
            subject,
            format!("its time is {} in the future", span(ahead)),
            "check the clocks of this machine and of the producers: read models that use times are misled",
        ),
        _ => {
            let ago = span(ahead.unsigned_abs());
            let found = if ahead.is_positive() {
                "it is from just now".to_owned()
            } else {
                format!("it is {ago} old")
            };
            Finding::fine(Area::Clock, subject, found)
        }
    }
}

/// The worker of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hands {
    /// A worker of this or another process has the projection.
    Somebody,
    /// No worker has it.
    Nobody,
    /// A worker has it, but it makes no progress.
    Stuck,
    /// This process tries to fold it, and fails.
    Failing,
}

/// Judges a projection. `building` is the worker of its rebuild, if there is one.
pub(super) fn projection(status: &ProjectionStatus, hands: Hands, building: Option<Hands>) -> Vec<Finding> {
    let name = &status.projection;
    let mut findings = Vec::new();
    let mut say = |finding: fn(Area, String, String, String) -> Finding, found: String, advice: String| {
        findings.push(finding(Area::Projections, name.clone(), found, advice));
    };
    if hands == Hands::Failing {
        let error = status.tally.last_error.as_deref().unwrap_or("it is not known why");
        let advice = "it is retried automatically; fix the cause in the message".to_owned();
        say(Finding::wrong, format!("folding fails: {error}"), advice);
    }
    if hands == Hands::Nobody && status.lag > 0 {
        let found = format!("{} not folded, and no worker runs", events(status.lag));
        say(Finding::wrong, found, "start `leftfold serve`, or the process that folds it".to_owned());
    }
    if hands == Hands::Stuck {
        let found = format!("{} behind, and it did not advance during the check", events(status.lag));
        let advice = "read the log of the process that folds it; one slow event may block it".to_owned();
        say(Finding::warning, found, advice);
    }
    if hands == Hands::Somebody && status.lag > BEHIND {
        let advice =
            "wait; if the lag does not shrink, check `leftfold status` and the worker's log".to_owned();
        say(Finding::notice, format!("{} behind, and being folded", events(status.lag)), advice);
    }
    if status.parked_documents + status.parked_streams > 0 {
        let (documents, streams) = (status.parked_documents, status.parked_streams);
        let what = match (documents, streams) {
            (documents, 0) => number(documents, "document"),
            (0, streams) => number(streams, "stream"),
            _ => format!("{} and {}", number(documents, "document"), number(streams, "stream")),
        };
        let are = if documents + streams == 1 { "is" } else { "are" };
        let found = format!("{what} {are} parked because an event could not be folded");
        let advice = format!(
            "run `leftfold parked list {name}` for the reasons, fix the code, and run `leftfold parked \
             retry {name}`"
        );
        say(Finding::wrong, found, advice);
    }
    if status.generations.is_outdated(&status.version) {
        let found = "newer code has rebuilt it, so this code stands by".to_owned();
        let advice = format!("run the newer code, or go back with `leftfold undo {name}`");
        say(Finding::warning, found, advice);
    } else if status.rebuild_needed {
        let found = "its documents were built by other code than the current".to_owned();
        let advice =
            format!("run `leftfold rebuild {name} --dry-run` to see the changes, then without `--dry-run`");
        say(Finding::warning, found, advice);
    }
    if status.generations.switching.is_some() && !matches!(hands, Hands::Somebody | Hands::Stuck) {
        let found = "a switch to another generation has begun, and no worker completes it".to_owned();
        let advice =
            format!("start a worker to complete it, or cancel it with `leftfold rebuild {name} --cancel`");
        say(Finding::wrong, found, advice);
    }
    if building == Some(Hands::Nobody) && status.generations.switching.is_none() {
        let found = "a rebuild has begun, and no process continues it".to_owned();
        let advice = format!(
            "continue with `leftfold rebuild {name}`, or cancel it with `leftfold rebuild {name} --cancel`"
        );
        say(Finding::notice, found, advice);
    }
    if findings.is_empty() {
        let documents = number(status.documents, "document");
        let found = match status.lag {
            0 => format!("all events are folded, into {documents}"),
            lag => format!("{} behind, and being folded; {documents}", events(lag)),
        };
        findings.push(Finding::fine(Area::Projections, name, found));
    }
    findings
}

/// Reports a projection that has never run on this store.
pub(super) fn never_run(name: &str) -> Finding {
    let advice =
        "start `leftfold serve`, or the process that folds it; or check that this is the right store";
    Finding::notice(Area::Projections, name, "it has never run on this store", advice)
}

/// Judges the deliveries that are not in the log.
pub(super) fn sequence(status: &sequence::SequencerStatus, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![held(status, now)];
    let undecided = |subject: &str, count: u64, found: String, advice: &str| {
        if count == 0 {
            return Finding::fine(Area::Sequence, subject, "none");
        }
        Finding::warning(Area::Sequence, subject, found, advice)
    };
    findings.push(undecided(
        "conflicts",
        status.conflicts,
        format!("{} contradict the log and are undecided", events(status.conflicts)),
        "run `leftfold conflicts list`, then `conflicts keep` or `conflicts discard` for each",
    ));
    findings.push(undecided(
        "rejected",
        status.rejected,
        format!("{} could not be read as events", number(status.rejected, "message")),
        "run `leftfold rejected list`, fix the source or its mapping, then `rejected resubmit` or `rejected \
         forget` for each",
    ));
    findings
}

fn held(status: &sequence::SequencerStatus, now: Timestamp) -> Finding {
    let subject = "held";
    let (Some(stream), Some(since)) = (&status.waits_longest, status.waits_since) else {
        return Finding::fine(Area::Sequence, subject, "no event is held");
    };
    let age = age(since, now);
    let found = format!("{} arrived early and are held, {stream} for {}", events(status.held), span(age));
    let advice = format!(
        "send the missing events again, configure a [resupply], or skip them: `leftfold held list`, \
         `leftfold held skip {stream} …`"
    );
    match age {
        age if age < HELD => Finding::fine(Area::Sequence, subject, found),
        age if age < WRONG_HELD => Finding::warning(Area::Sequence, subject, found, advice),
        _ => Finding::wrong(Area::Sequence, subject, found, advice),
    }
}

/// Reports documents that have changed without planned tasks.
pub(super) fn unplanned(on: &DocumentSource) -> Finding {
    let found = "documents have changed, and no planner plans tasks for them";
    let advice = "start a process that has a reaction to them; if one runs, read its log";
    Finding::wrong(Area::Reactions, on.to_string(), found, advice)
}

/// Judges a reaction.
pub(super) fn reaction(registered: &Registered, depth: &Depth, now: Timestamp) -> Vec<Finding> {
    let name = &registered.name;
    let mut findings = Vec::new();
    let held_up = registered.throttled.filter(|until| *until > now);
    if registered.paused {
        let why = registered.paused_because.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let advice = format!("fix the cause, then run `leftfold tasks resume {name}`");
        findings.push(Finding::warning(Area::Reactions, name, format!("it is paused{why}"), advice));
    } else if let Some(until) = held_up {
        let found = format!("it is throttled for another {}", span(age(now, until)));
        let advice = format!("wait, or run `leftfold tasks resume {name}`");
        findings.push(Finding::notice(Area::Reactions, name, found, advice));
    } else if let Some(due) = depth.oldest_due
        && age(due, now) >= DUE
    {
        let found = format!("a task is due for {} and has not started", span(age(due, now)));
        let advice = "start a process that runs it, or more of them; a handler may also hang";
        let say = if age(due, now) < WRONG_DUE { Finding::warning } else { Finding::wrong };
        findings.push(say(Area::Reactions, name, found, advice));
    }
    let failed = depth.states.get(&State::Failed).copied().unwrap_or(0);
    if failed > 0 {
        let found = format!("{} failed too often and {} not retried", number(failed, "task"), was(failed));
        let advice = format!(
            "run `leftfold tasks list --state failed --reaction {name}` for the errors, fix the cause, and \
             run `leftfold tasks retry --state failed --reaction {name}`"
        );
        findings.push(Finding::wrong(Area::Reactions, name, found, advice));
    }
    if findings.is_empty() {
        let waiting: u64 = [State::Pending, State::Running, State::Changed]
            .iter()
            .filter_map(|state| depth.states.get(state))
            .sum();
        findings.push(Finding::fine(Area::Reactions, name, format!("{} to do", number(waiting, "task"))));
    }
    findings
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

fn events(count: u64) -> String {
    number(count, "event")
}

fn number(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn was(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Judges documents that can't be read.
pub(super) fn damaged<'d>(
    name: &str,
    mut damaged: impl Iterator<Item = (&'d DocumentId, JsonFault)>,
) -> Option<Finding> {
    let (id, fault) = damaged.next()?;
    let others = match damaged.count() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let found = format!("the stored document {id} is damaged ({fault}){others}");
    Some(Finding::wrong(
        Area::Projections,
        name,
        found,
        "check the disk; refold the damaged documents, or rebuild",
    ))
}

#[cfg(test)]
mod tests;
