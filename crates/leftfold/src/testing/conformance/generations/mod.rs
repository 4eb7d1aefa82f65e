//! The cases about generations: a collection that is rebuilt beside the live one, and replaces it.
//!
//! | module | purpose |
//! | --- | --- |
//! | `switch` | the stored generations, and switches between them |
//! | `rebuild` | whole rebuilds, with projections and reactions |
//! | `fixtures` | values and checks that the cases share |

mod fixtures;
mod rebuild;
mod switch;

pub use rebuild::*;
pub use switch::*;
