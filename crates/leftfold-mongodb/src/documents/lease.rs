//! Leases: the worker that holds a projection, by the server's clock. They avoid duplicate work;
//! correctness does not depend on them.
//!
//! Leases are separate from checkpoints, so that a renewal never conflicts with a transaction that
//! moves a checkpoint.

use std::time::Duration;

use bson::{Document, doc};
use leftfold::Collection;
use leftfold::documents::Claim;
use mongodb::options::ReturnDocument;

use crate::connection::Base;
use crate::error::Failure;
use crate::schema::LEASES;

/// Returns the condition that a lease ends within its length. A lease that ends later was written
/// before the server's clock was set back. It counts as expired, and its holder claims it again.
pub(crate) fn not_far_off() -> Document {
    const SLACK: i64 = 1_000;
    const YEAR: i64 = 365 * 24 * 3_600 * 1_000;
    let length = doc! { "$add": [{ "$ifNull": ["$millis", YEAR] }, SLACK] };
    doc! { "$lte": ["$until", { "$add": ["$$NOW", length] }] }
}

impl Base {
    pub(crate) async fn claim(
        &self,
        projection: &Collection,
        owner: &str,
        lease: Duration,
    ) -> Result<Claim, Failure> {
        point!("claim");
        let millis = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let owner = doc! { "$literal": owner };
        let is_theirs = doc! { "$and": [
            { "$ne": [{ "$ifNull": ["$owner", &owner] }, &owner] },
            { "$gt": ["$until", "$$NOW"] },
            not_far_off(),
        ] };
        let step = [
            doc! { "$set": { "theirs": is_theirs, "asked": "$$NOW" } },
            doc! { "$set": {
                "owner": { "$cond": ["$theirs", "$owner", &owner] },
                "until": { "$cond": ["$theirs", "$until", { "$add": ["$$NOW", millis] }] },
                "millis": { "$cond": ["$theirs", "$millis", millis] },
            } },
        ];
        let leases = self.db.collection::<Document>(LEASES);
        let claimed = leases
            .find_one_and_update(doc! { "_id": projection.stored(0).as_str() }, step.to_vec())
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?
            .ok_or_else(|| Failure::damaged("a lease that was just written is missing"))?;
        point!("claimed");
        if !claimed.get_bool("theirs").unwrap_or(false) {
            return Ok(Claim::Ours);
        }
        let (until, now) = (claimed.get_datetime("until"), claimed.get_datetime("asked"));
        let left = match (until, now) {
            (Ok(until), Ok(now)) => until.timestamp_millis().saturating_sub(now.timestamp_millis()),
            _ => return Err(Failure::damaged("a lease has no end")),
        };
        Ok(Claim::Theirs { ends_in: Duration::from_millis(left.max(1).unsigned_abs()) })
    }

    pub(crate) async fn release(&self, projection: &Collection, owner: &str) -> Result<(), Failure> {
        let ours = doc! { "_id": projection.stored(0).as_str(), "owner": owner };
        let free = doc! { "$unset": { "owner": "", "until": "", "millis": "" } };
        self.db.collection::<Document>(LEASES).update_one(ours, free).await?;
        Ok(())
    }
}
