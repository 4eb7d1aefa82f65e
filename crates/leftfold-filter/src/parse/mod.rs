//! Parses a value into a filter. An error names the expected form and the place.
//!
//! | module | purpose |
//! | --- | --- |
//! | `query` | the structure of a filter: logic, paths and conditions |
//! | `operators` | the operators that apply to a path |
//! | `literal` | the values that a filter compares with |
//! | `long_form` | regular expressions in values, in one form |

mod literal;
mod long_form;
mod operators;
mod query;

pub(crate) use long_form::with_long_patterns;
pub(crate) use query::parse;
