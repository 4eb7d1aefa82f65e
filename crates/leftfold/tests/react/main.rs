//! Reactions on a store in memory: planned, run, retried, taken over, paused, deleted.
//!
//! | module | purpose |
//! | --- | --- |
//! | `handling` | from a changed document to its handler |
//! | `attempts` | runs that fail, are lost, or are stopped |
//! | `planning` | planning after lost changes, and with changed code |
//! | `operating` | pauses, cleanup, and invalid reactions |
//! | `events` | reactions to events and to the time |
//! | `fixtures` | values and checks that these tests share |

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod attempts;
mod events;
mod fixtures;
mod handling;
mod operating;
mod planning;
