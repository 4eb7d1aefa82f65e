//! The cases about documents, checkpoints and leases.
//!
//! | module | purpose |
//! | --- | --- |
//! | `guards` | guarded commits, and their conflicts |
//! | `reads` | loads, scans, and lists of parked documents |
//! | `checkpoints` | checkpoints, and waits for them |
//! | `leases` | the lease of a projection |
//! | `fixtures` | values and checks that the cases share |

mod checkpoints;
mod fixtures;
mod guards;
mod leases;
mod reads;

pub use checkpoints::*;
pub use guards::*;
pub use leases::*;
pub use reads::*;
