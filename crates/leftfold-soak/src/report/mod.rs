//! The report of a run: results, checks, a table.

mod observed;

pub(crate) use self::observed::Report;
