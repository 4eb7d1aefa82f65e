//! The guarantees at the critical moments: each test puts another writer's work, or an unknown
//! outcome, exactly where a likely mistake would show.
//!
//! | module | purpose |
//! | --- | --- |
//! | `manual` | marks, and manual folds |
//! | `reads` | reads that wait for an event |
//! | `commits` | commits with unknown outcomes, and commits that meet other writers' work |
//! | `parked` | parked documents and streams |
//! | `repairs` | retries and refolds of parked documents and streams |
//! | `unstorable` | documents that can't be stored |
//! | `leases` | leases of workers |
//! | `fixtures` | values and checks that these tests share |

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod commits;
#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod leases;
mod manual;
mod parked;
mod reads;
mod repairs;
#[path = "../common/scripted.rs"]
mod scripted;
mod unstorable;
