//! The stored form of a task.
//!
//! ```text
//! { _id: { reaction: "mail", document: "cart-42" }, version: 17, state: "pending", needs: 1, open: true,
//!   due: 1767225600000000, changed_at: 1767225600000000, error: "…", rest: '{"inside":true,…}' }
//! ```
//!
//! Queried values are fields, with times in microseconds. Everything that is only read with the
//! whole task is JSON in `rest`. Times are exact there; `due` and `check_at` are rounded up, so
//! that nothing is found too early. `open` exists if the task can ever be due. A waiting suspect
//! has its level in `suspicion` and needs a version that no worker has. So the walk along other due
//! tasks skips it.

use bson::raw::cstr;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::react::{Run, State, StreamProgress, Suspicion, Task, TaskKey};
use leftfold::{DocumentId, Json, Kind};
use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// The largest task. A guarded write of it, as one command, stays below the server's limit.
const MAX_TASK_BYTES: usize = (16 << 20) - (64 << 10);

/// The offset added to the version that a suspect needs.
pub(super) const SUSPECT: i64 = 1 << 32;

/// The parts of a task that no query uses.
#[derive(Serialize, Deserialize)]
struct Rest {
    inside: bool,
    epoch: u64,
    generation: u64,
    watched: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check_at: Option<Timestamp>,
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_failed: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claimed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done_at: Option<Timestamp>,
    changed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Run>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<StreamProgress>,
    #[serde(default, skip_serializing_if = "is_default")]
    suspicion: Suspicion,
    #[serde(default, skip_serializing_if = "is_default")]
    excused: u8,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the `_id` of a task. These sort by reaction, then by document.
pub(super) fn key(key: &TaskKey) -> Document {
    doc! { "reaction": &key.reaction, "document": key.document.as_str() }
}

/// Returns the filter for a task with this version.
pub(super) fn guard(task: &TaskKey, version: u64) -> Document {
    doc! { "_id": key(task), "version": version.cast_signed() }
}

/// Returns the name of a state.
pub(super) fn state(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Running => "running",
        State::Changed => "changed",
        State::Done => "done",
        State::Stale => "stale",
        State::Failed => "failed",
    }
}

/// Returns whether a task in this state is open: it can be due.
pub(super) fn is_open(state: State) -> bool {
    matches!(state, State::Pending | State::Running | State::Changed)
}

/// Returns the names of the other states.
pub(crate) fn closed() -> Vec<&'static str> {
    STATES.into_iter().filter(|one| !is_open(*one)).map(state).collect()
}

const STATES: [State; 6] =
    [State::Pending, State::Running, State::Changed, State::Done, State::Stale, State::Failed];

/// Returns the state with this name.
pub(super) fn state_of(name: &str) -> Result<State, Failure> {
    let found = STATES.into_iter().find(|one| state(*one) == name);
    found.ok_or_else(|| Failure::damaged(format!("a task has the unknown state {name:?}")))
}

/// Returns a time in microseconds, rounded up.
pub(super) fn micros(time: Timestamp) -> i64 {
    let micros = time.as_microsecond();
    if time.subsec_nanosecond() % 1_000 > 0 { micros + 1 } else { micros }
}

/// Converts microseconds into a time.
pub(super) fn time(micros: i64) -> Result<Timestamp, Failure> {
    Timestamp::from_microsecond(micros).map_err(|error| Failure::damaged(error.to_string()))
}

pub(super) fn encode(task: &Task) -> Result<RawDocumentBuf, Failure> {
    let rest = Rest {
        inside: task.inside,
        epoch: task.epoch,
        generation: task.generation,
        watched: task.watched.clone(),
        due: task.due,
        since: task.since,
        check_at: task.check_at,
        attempts: task.attempts,
        first_failed: task.first_failed,
        owner: task.owner.clone(),
        claimed_at: task.claimed_at,
        done_at: task.done_at,
        changed_at: task.changed_at,
        history: task.history.clone(),
        cursor: task.cursor,
        suspicion: task.suspicion,
        excused: task.excused,
    };
    let rest = serde_json::to_string(&rest).map_err(|error| Failure::damaged(error.to_string()))?;
    let mut stored = RawDocumentBuf::new();
    stored.append(cstr!("_id"), RawDocumentBuf::try_from(&key(&task.key))?);
    stored.append(cstr!("version"), task.version.cast_signed());
    stored.append(cstr!("state"), state(task.state));
    let waits_under = task.waits_under();
    let needs = i64::from(task.needs);
    stored.append(cstr!("needs"), if waits_under == Suspicion::None { needs } else { needs + SUSPECT });
    if waits_under != Suspicion::None {
        stored.append(cstr!("suspicion"), i32::from(waits_under.level()));
    }
    if task.can_be_due() {
        stored.append(cstr!("open"), true);
    }
    if let Some(due) = task.due {
        stored.append(cstr!("due"), micros(due));
    }
    if let Some(check_at) = task.check_at {
        stored.append(cstr!("check_at"), micros(check_at));
    }
    stored.append(cstr!("changed_at"), task.changed_at.as_microsecond());
    if let Some(error) = &task.error {
        stored.append(cstr!("error"), error.as_str());
    }
    stored.append(cstr!("rest"), rest);
    if stored.as_bytes().len() > MAX_TASK_BYTES {
        let TaskKey { reaction, document } = &task.key;
        let advice = "let the reaction watch fewer fields of the document";
        let report = format!("the task of {reaction} for {document} would be larger than 16 MiB");
        return Err(Failure::new(Kind::Invalid, advice, report));
    }
    Ok(stored)
}

pub(super) fn decode(stored: &RawDocument) -> Result<Task, Failure> {
    let rest: Rest = serde_json::from_str(stored.get_str("rest")?)
        .map_err(|error| Failure::damaged(format!("a task can't be read: {error}")))?;
    let needs = stored.get_i64("needs")? % SUSPECT;
    Ok(Task {
        key: decode_key(stored.get_document("_id")?)?,
        version: stored.get_i64("version")?.cast_unsigned(),
        state: state_of(stored.get_str("state")?)?,
        inside: rest.inside,
        epoch: rest.epoch,
        generation: rest.generation,
        watched: rest.watched,
        due: rest.due,
        since: rest.since,
        check_at: rest.check_at,
        needs: u32::try_from(needs).map_err(|error| Failure::damaged(error.to_string()))?,
        attempts: rest.attempts,
        first_failed: rest.first_failed,
        error: stored.get("error")?.and_then(bson::RawBsonRef::as_str).map(str::to_owned),
        owner: rest.owner,
        claimed_at: rest.claimed_at,
        done_at: rest.done_at,
        changed_at: rest.changed_at,
        history: rest.history,
        cursor: rest.cursor,
        suspicion: rest.suspicion,
        excused: rest.excused,
    })
}

pub(super) fn decode_key(id: &RawDocument) -> Result<TaskKey, Failure> {
    let reaction = id.get_str("reaction")?.to_owned();
    Ok(TaskKey { reaction, document: DocumentId::stored(id.get_str("document")?) })
}

/// Returns the filter for any of these keys.
pub(super) fn any_of<'a>(keys: impl IntoIterator<Item = &'a TaskKey>) -> Document {
    doc! { "_id": { "$in": keys.into_iter().map(|one| Bson::Document(key(one))).collect::<Vec<_>>() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanosecond(1_800_000_000_000_000_000 + i128::from(nanos)).unwrap()
    }

    /// Covers times with nanoseconds, numbers at their limits, and an id longer than users may
    /// enter.
    #[test]
    fn a_task_comes_back_as_it_went_in_and_is_never_found_too_early() {
        let task = Task {
            key: TaskKey { reaction: "mail".to_owned(), document: DocumentId::stored(&"x".repeat(999)) },
            version: u64::MAX - 1,
            state: State::Running,
            inside: true,
            epoch: u64::MAX,
            generation: 1,
            watched: Json::parse(r#"{"a": 1.50}"#).unwrap(),
            due: Some(at(1)),
            since: at(2),
            check_at: Some(at(2_000)),
            needs: u32::MAX,
            attempts: 3,
            first_failed: None,
            error: Some("a\0b".to_owned()),
            owner: None,
            claimed_at: Some(at(4)),
            done_at: Some(at(5)),
            changed_at: at(6),
            history: Vec::new(),
            cursor: None,
            suspicion: Suspicion::None,
            excused: 0,
        };
        let stored = encode(&task).unwrap();
        assert_eq!(decode(&stored).unwrap(), task);
        assert_eq!(stored.get_i64("due").unwrap(), 1_800_000_000_000_001);
        assert_eq!(stored.get_i64("check_at").unwrap(), 1_800_000_000_000_002);
        assert!(stored.get_bool("open").unwrap());
        let done = Task { state: State::Done, ..task };
        assert!(encode(&done).unwrap().get("open").unwrap().is_none());
        let suspect = Task { state: State::Pending, suspicion: Suspicion::Few, excused: 2, ..done };
        let stored = encode(&suspect).unwrap();
        assert_eq!(decode(&stored).unwrap(), suspect);
        assert_eq!(stored.get_i32("suspicion").unwrap(), 2);
        assert!(stored.get_i64("needs").unwrap() > i64::from(u32::MAX), "no worker has such code");
    }

    #[test]
    fn a_task_that_is_too_large_says_what_to_do() {
        let watched = Json::of(&"x".repeat(MAX_TASK_BYTES)).unwrap();
        let small = Task {
            key: TaskKey { reaction: "mail".to_owned(), document: DocumentId::stored("a") },
            version: 1,
            state: State::Pending,
            inside: true,
            epoch: 0,
            generation: 0,
            watched: Json::stored("1"),
            due: None,
            since: at(0),
            check_at: None,
            needs: 1,
            attempts: 0,
            first_failed: None,
            error: None,
            owner: None,
            claimed_at: None,
            done_at: None,
            changed_at: at(0),
            history: Vec::new(),
            cursor: None,
            suspicion: Suspicion::None,
            excused: 0,
        };
        assert!(encode(&small).is_ok());
        let error =
            encode(&Task { watched, ..small }).unwrap_err().to_error("save tasks in", "db").to_string();
        assert!(error.contains("the task of mail for a") && error.contains("watch fewer fields"), "{error}");
    }

    #[test]
    fn every_state_has_its_name() {
        for one in STATES {
            assert_eq!(state_of(state(one)).unwrap(), one);
            assert_eq!(serde_json::to_string(&one).unwrap(), format!("\"{}\"", state(one)));
        }
        assert!(state_of("lost").is_err());
    }
}
