//! The failpoints inside a process that may be killed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::messages::{Action, Message, Order, send};
use crate::signals;

/// An order, and the points that lead to its place.
struct Armed {
    place: String,
    /// The points still to be passed, in order. The order applies at the last one.
    passes: Vec<String>,
    /// The number of times that the process must pass the first point.
    times: u32,
    action: Action,
}

static ARMED: Mutex<Option<Armed>> = Mutex::new(None);
/// `true` if a process that waits at a place may go on.
static MAY_GO_ON: Mutex<bool> = Mutex::new(false);
static BELL: Condvar = Condvar::new();

/// In handlers: before a transaction.
pub(crate) const BEGIN: &str = "handler::begin";
/// In handlers: before a commit, when the task is completed.
pub(crate) const COMPLETED: &str = "handler::completed";
/// In handlers: after the commit.
pub(crate) const COMMITTED: &str = "handler::committed";
/// In handlers: before an effect outside the store.
pub(crate) const EFFECT: &str = "handler::effect";
/// In handlers: after that effect.
pub(crate) const EFFECTED: &str = "handler::effected";

/// `true` if this program has failpoints.
pub(crate) const BUILT_IN: bool = cfg!(feature = "failpoints");

/// Starts to watch these points.
pub(crate) fn watch(names: impl IntoIterator<Item = &'static str>) -> Result<(), String> {
    names.into_iter().try_for_each(|name| on(name, move || reached(name)))
}

#[cfg(feature = "failpoints")]
fn on(name: &str, reached: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    fail::cfg_callback(name, reached)
}

#[cfg(not(feature = "failpoints"))]
fn on(name: &str, _: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    Err(format!("there is no failpoint {name}; build with the feature `failpoints`"))
}

/// Carries out an order of the rig.
pub(crate) fn obey(order: Order) {
    match order {
        Order::At { place, passes, times, action } => {
            *lock(&ARMED) = Some(Armed { place, passes, times, action });
        }
        Order::GoOn => {
            *lock(&MAY_GO_ON) = true;
            BELL.notify_all();
        }
        Order::Disarm => {
            lock(&ARMED).take();
            // If the rig is gone, the message is lost, and the input ends as well.
            let _ = send(&Message::Disarmed);
        }
    }
}

/// Handles a failpoint that the process has reached.
pub(crate) fn reached(name: &str) {
    let Some(Armed { place, action, .. }) = pass(&mut lock(&ARMED), name) else { return };
    let _ = send(&Message::Reached { place });
    match action {
        Action::Die => signals::kill_self(),
        // A process that stops itself may run on for a moment, but it must stop exactly here.
        Action::Wait => {
            let waiting = BELL.wait_while(lock(&MAY_GO_ON), |may| !*may);
            *waiting.unwrap_or_else(PoisonError::into_inner) = false;
        }
    }
}

/// Passes a point. Returns the order if it applies here.
fn pass(armed: &mut Option<Armed>, name: &str) -> Option<Armed> {
    let waiting = armed.as_mut().filter(|armed| armed.passes.first().is_some_and(|next| next == name))?;
    if waiting.times > 1 {
        waiting.times -= 1;
        return None;
    }
    waiting.passes.remove(0);
    if waiting.passes.is_empty() { armed.take() } else { None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_happens_at_the_last_point_after_the_first_was_passed_so_often() {
        let passes = vec!["written".to_owned(), "commit".to_owned()];
        let mut armed = Some(Armed { place: "before".to_owned(), passes, times: 2, action: Action::Die });
        for name in ["commit", "written", "commit", "other", "written", "written"] {
            assert!(pass(&mut armed, name).is_none(), "{name}");
        }
        assert!(pass(&mut armed, "commit").is_some_and(|armed| armed.action == Action::Die));
        assert!(pass(&mut armed, "commit").is_none(), "once only");
    }
}
