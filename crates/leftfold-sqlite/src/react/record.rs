//! The stored form of a task: a row with the whole task as JSON, and columns for lookups.
//!
//! `due` is set only in tasks that can be claimed, and `check_at` only in tasks to check. The index
//! by state leaves out done tasks. So these indexes stay as small as the remaining work, and cost
//! little, however many tasks are done.

use jiff::Timestamp;
use leftfold::react::State;
use rusqlite::Row;

use crate::error::Failure;

/// All states.
pub(super) const STATES: [State; 6] =
    [State::Pending, State::Running, State::Changed, State::Done, State::Stale, State::Failed];

/// Returns the name of a state.
pub(super) fn name(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Running => "running",
        State::Changed => "changed",
        State::Done => "done",
        State::Stale => "stale",
        State::Failed => "failed",
    }
}

/// Decodes a state.
pub(super) fn state(row: &Row<'_>, column: usize) -> Result<State, Failure> {
    let text = row.get_ref(column)?.as_str()?;
    let state = STATES.into_iter().find(|state| name(*state) == text);
    state.ok_or_else(|| Failure::damaged(format!("a task has the unknown state {text:?}")))
}

/// Converts a time for storage, rounded up.
pub(super) fn micros(time: Timestamp) -> i64 {
    let micros = time.as_microsecond();
    micros + i64::from(time.as_nanosecond() > i128::from(micros) * 1_000)
}

/// Converts a stored time. The latest possible time lies between two microseconds.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}
