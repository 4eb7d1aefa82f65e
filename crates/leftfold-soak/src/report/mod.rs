//! The report of a run: results, checks, a table.

mod checks;
mod json;
mod results;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use self::results::Report;
