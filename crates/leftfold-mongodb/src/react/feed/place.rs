//! Places in a change stream, and the stored place of a feed.
//!
//! A server resumes by finding the token's change, and fails if its collection is no longer
//! followed. So a place also stores the time and the collection of that change.

use std::collections::BTreeMap;

use bson::{Document, RawDocument, Timestamp, doc};
use mongodb::change_stream::event::ResumeToken;
use serde::{Deserialize, Serialize};

use crate::connection::Base;
use crate::error::Failure;
use crate::schema::FEEDS;

/// A place in the stream.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) token: ResumeToken,
    /// The number of switches of each followed projection, if there were any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) switches: BTreeMap<String, i64>,
    /// The change that the token belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<Of>,
}

/// The collection and the time of a change.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Of {
    pub(super) collection: String,
    pub(super) time: u32,
    pub(super) increment: u32,
}

impl Of {
    /// Returns the collection and the time of a change.
    pub(super) fn change(change: &RawDocument) -> Option<Self> {
        let Timestamp { time, increment } = change.get_timestamp("clusterTime").ok()?;
        Some(Self { collection: collection(change)?.to_owned(), time, increment })
    }
}

/// Returns the name of a change's collection.
pub(super) fn collection(change: &RawDocument) -> Option<&str> {
    change.get_document("ns").ok()?.get_str("coll").ok()
}

/// Returns the time at the start of a resume token: a type byte, the seconds, and a number within
/// the second.
pub(super) fn time_of(token: &ResumeToken) -> Option<Timestamp> {
    let token = serde_json::to_value(token).ok()?;
    let number = |range| u32::from_str_radix(token.get("_data")?.as_str()?.get(range)?, 16).ok();
    (number(0..2) == Some(0x82)).then_some(())?;
    Some(Timestamp { time: number(2..10)?, increment: number(10..18)? })
}

impl Base {
    /// Reads the place of a feed.
    pub(in crate::react) async fn feed_place(&self, name: &str) -> Result<Option<String>, Failure> {
        self.catch_up().await?;
        let found = self.db.collection::<Document>(FEEDS).find_one(doc! { "_id": name }).await?;
        Ok(found.and_then(|found| found.get_str("place").ok().map(str::to_owned)))
    }

    /// Writes the place of a feed, if the lease still has this number.
    pub(in crate::react) async fn put_feed_place(
        &self,
        name: &str,
        lease: u64,
        place: Option<String>,
    ) -> Result<bool, Failure> {
        let Ok(lease) = i64::try_from(lease) else { return Ok(false) };
        let change = place
            .map_or_else(|| doc! { "$unset": { "place": "" } }, |place| doc! { "$set": { "place": place } });
        let feeds = self.db.collection::<Document>(FEEDS);
        let updated = feeds.update_one(doc! { "_id": name, "number": lease }, change).await;
        point!("place-put");
        Ok(updated.map_err(|error| Failure::from(error).unknown())?.matched_count == 1)
    }
}
