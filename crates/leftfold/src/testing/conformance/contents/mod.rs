//! The cases about documents that are written without events.
//!
//! | module | purpose |
//! | --- | --- |
//! | `writes` | guarded writes, one and many |
//! | `operations` | operations: applied once, the same in all stores |
//! | `reactions` | reactions to such documents |
//! | `fixtures` | values and checks that the cases share |

mod fixtures;
mod operations;
mod reactions;
mod writes;

pub use operations::*;
pub use reactions::*;
pub use writes::*;
