//! Events by place or id, in the log and held, and pages of held events.

use std::collections::BTreeMap;

use leftfold::StreamId;
use leftfold::log::Limit;
use leftfold::sequence::{Found, HeldPage, WantedEvents};
use rusqlite::{Connection, params};

use super::record;
use crate::encoding::signed;
use crate::error::Failure;
use crate::log;

const AT: &str = "SELECT position, stream, revision, id, kind, time, data, metadata FROM leftfold_events \
    WHERE stream = ?1 AND revision = ?2";
const HELD: &str =
    "SELECT stream, revision, previous, since, id, kind, time, data, metadata FROM leftfold_held";

/// Returns the wanted events that exist.
pub(super) fn find(file: &Connection, wanted: &WantedEvents) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut logged = file.prepare_cached(AT)?;
    let mut held = file.prepare_cached(&format!("{HELD} WHERE stream = ?1 AND revision = ?2"))?;
    for (stream, at) in &wanted.places {
        let place = params![stream.as_str(), signed(at.0)];
        if let Some(row) = logged.query(place)?.next()? {
            found.logged.push(log::event(row)?);
        } else if let Some(row) = held.query(place)?.next()? {
            found.held.push(record::held(row)?);
        }
    }
    let mut by_id = file.prepare_cached(log::BY_ID)?;
    for id in &wanted.ids {
        if let Some(row) = by_id.query([id.as_str()])?.next()? {
            found.logged.push(log::event(row)?);
        }
    }
    Ok(found)
}

/// Returns the lowest held events of these streams. Pages fill up in stream order until the limit.
pub(super) fn pages(
    file: &Connection,
    streams: Vec<StreamId>,
    limit: Limit,
) -> Result<BTreeMap<StreamId, HeldPage>, Failure> {
    let mut statement = file.prepare_cached(&format!("{HELD} WHERE stream = ?1 ORDER BY revision"))?;
    let mut room = limit;
    let mut pages = BTreeMap::new();
    for stream in streams {
        let mut failed = None;
        let mut rows = statement.query([stream.as_str()])?;
        let list = std::iter::from_fn(|| {
            let next = rows.next().map_err(Failure::from).and_then(|row| row.map(record::held).transpose());
            next.unwrap_or_else(|failure| {
                failed = Some(failure);
                None
            })
        });
        let page = HeldPage::cut(list, &mut room);
        if let Some(failure) = failed {
            return Err(failure);
        }
        drop(rows);
        pages.insert(stream, page);
    }
    Ok(pages)
}
