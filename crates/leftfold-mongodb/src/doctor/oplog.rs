//! The oplog window: a process that was away for longer has to compare all documents, and a member
//! that was away has to resync.

use std::time::Duration;

use bson::{Document, doc};
use leftfold::inspect::doctor::{Area, Finding, span};
use mongodb::Database;
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria};

use super::commands::{Answer, ask, denied, hello, number};
use crate::connection::Base;
use crate::error::{Failure, code};

const SUBJECT: &str = "window";
/// The thresholds of the window: a day is usual, and an hour does not last through a night.
const SHORT: Duration = Duration::from_hours(24);
const TOO_SHORT: Duration = Duration::from_hours(1);
/// The fill level above which the oplog drops as much as it receives.
const FULL: f64 = 0.9;

/// Checks the oplog window of a replica set. Returns `None` on other servers.
pub(super) async fn look(base: &Base) -> Result<Option<Finding>, Failure> {
    if !hello(base).await?.contains_key("setName") {
        return Ok(None);
    }
    let local = base.client.database("local");
    let (Some(first), Some(last)) = (end(&local, 1).await?, end(&local, -1).await?) else {
        return Ok(Some(denied(Area::Oplog, SUBJECT, "the oplog", "`read` on `local`")));
    };
    let filled = match ask(&local, doc! { "collStats": "oplog.rs" }).await? {
        Answer::Reply(stats) => {
            number(&stats, "size").zip(number(&stats, "maxSize")).map(|(size, most)| size / most)
        }
        Answer::Denied | Answer::Unknown => None,
    };
    let window = Duration::from_secs(u64::from(last.saturating_sub(first)));
    Ok(Some(judge(window, filled)))
}

/// Returns the time of the first or the last oplog entry, or `None` if the user may not read it.
async fn end(local: &Database, direction: i32) -> Result<Option<u32>, Failure> {
    const DENIED: i32 = 13;
    let mut options = CollectionOptions::default();
    options.read_concern = Some(ReadConcern::local());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    let oplog = local.collection_with_options::<Document>("oplog.rs", options);
    let find = oplog.find_one(doc! {}).sort(doc! { "$natural": direction }).projection(doc! { "ts": 1 });
    match find.await {
        Ok(found) => Ok(found.and_then(|found| Some(found.get_timestamp("ts").ok()?.time))),
        Err(error) if code(&error).is_some_and(|(code, _)| code == DENIED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Judges an oplog by its window and its fill level.
fn judge(window: Duration, filled: Option<f64>) -> Finding {
    let filled = filled.unwrap_or(1.0).clamp(0.001, 1.0);
    if filled < FULL && window < TOO_SHORT {
        let found = format!("{} so far; the oplog is not full yet", span(window));
        return Finding::fine(Area::Oplog, SUBJECT, found);
    }
    // Extrapolate the full window from the rate so far.
    let whole = if filled < FULL { window.div_f64(filled) } else { window };
    let found = if filled < FULL {
        format!("{} so far, {} when the oplog is full", span(window), span(whole))
    } else {
        span(window)
    };
    let advice = "enlarge it: db.adminCommand({ replSetResizeOplog: 1, size: <megabytes>, minRetentionHours: 24 }) on each \
                  member; reactions that were stopped for longer compare all documents, and members need a full resync";
    match whole {
        whole if whole < TOO_SHORT => Finding::wrong(Area::Oplog, SUBJECT, found, advice),
        whole if whole < SHORT => Finding::warning(Area::Oplog, SUBJECT, found, advice),
        _ => Finding::fine(Area::Oplog, SUBJECT, found),
    }
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity;

    use super::*;

    #[test]
    fn an_oplog_must_outlast_a_night() {
        let of = |hours: f64, filled: Option<f64>| {
            judge(Duration::from_secs_f64(hours * 3_600.0), filled).severity
        };
        for (hours, filled, severity) in [
            (30.0, Some(1.0), Severity::Fine),
            (30.0, None, Severity::Fine),
            (20.0, Some(0.95), Severity::Warning),
            (0.9, Some(1.0), Severity::Wrong),
            (0.9, None, Severity::Wrong),
            // A server that has just started.
            (0.01, Some(0.001), Severity::Fine),
            (2.0, Some(0.01), Severity::Fine),
            (2.0, Some(0.5), Severity::Warning),
        ] {
            assert_eq!(of(hours, filled), severity, "{hours} hours, {filled:?}");
        }
        let finding = judge(Duration::from_hours(2), Some(0.5));
        assert_eq!(finding.found, "2 hours so far, 4 hours when the oplog is full");
    }
}
