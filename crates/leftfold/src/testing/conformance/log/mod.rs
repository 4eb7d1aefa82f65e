//! The cases about the log.
//!
//! | module | purpose |
//! | --- | --- |
//! | `append` | appends: numbered, idempotent, concurrent |
//! | `read` | reads in pages, which skip nothing |
//! | `wait` | waits for new events |
//! | `fixtures` | values and checks that the cases share |

mod append;
mod fixtures;
mod read;
mod wait;

pub use append::*;
pub use read::*;
pub use wait::*;
