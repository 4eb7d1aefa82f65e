//! Leases of feeds, and the heartbeats of workers. A lease and its feed's place share a document,
//! so that the place is written under the lease's number.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::ReturnDocument;

use crate::connection::Base;
use crate::documents::lease::not_far_off;
use crate::error::{Failure, is_duplicate};
use crate::schema::{FEEDS, WORKERS};

impl Base {
    /// Claims or renews a lease, by the server's clock. Returns its number if this owner holds it.
    /// Also stores the store's time in the lease.
    pub(super) async fn take_lease(
        &self,
        name: &str,
        owner: &str,
        length: Duration,
    ) -> Result<Option<u64>, Failure> {
        let millis = i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4);
        let ours = doc! { "$literal": owner };
        let is_ours = doc! { "$eq": ["$owner", &ours] };
        // A missing field is never later than now.
        let is_theirs = doc! { "$and": [
            { "$ne": [{ "$ifNull": ["$owner", &ours] }, &ours] },
            { "$gt": ["$until", "$$NOW"] },
            not_far_off(),
        ] };
        let number = doc! { "$ifNull": ["$number", 0_i64] };
        let mine = doc! {
            "owner": ours,
            "until": { "$add": ["$$NOW", millis] },
            "millis": millis,
            "time": { "$max": ["$time", self.clock.last()] },
            "number": { "$cond": [is_ours, &number, { "$add": [&number, 1_i64] }] },
        };
        let step = [
            doc! { "$replaceWith": { "$cond": [is_theirs, "$$ROOT", { "$mergeObjects": ["$$ROOT", mine] }] } },
        ];
        let feeds = self.db.collection::<Document>(FEEDS);
        let taken = loop {
            let take = feeds.find_one_and_update(doc! { "_id": name }, step.to_vec());
            match take.upsert(true).return_document(ReturnDocument::After).await {
                Ok(taken) => break taken,
                // Another client created the lease at the same time.
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error.into()),
            }
        };
        point!("lease-taken");
        let taken = taken.ok_or_else(|| Failure::damaged("a lease that was just written is missing"))?;
        self.clock.keep(taken.get_i64("time").ok());
        if taken.get_str("owner").is_ok_and(|holder| holder == owner) {
            let number = taken.get_i64("number");
            return Ok(Some(number.map_err(|_| Failure::damaged("a lease has no number"))?.unsigned_abs()));
        }
        Ok(None)
    }

    pub(super) async fn give_lease(&self, name: &str, owner: &str) -> Result<(), Failure> {
        let ours = doc! { "_id": name, "owner": owner };
        let free = doc! { "$unset": { "owner": "", "until": "", "millis": "" } };
        self.db.collection::<Document>(FEEDS).update_one(ours, free).await?;
        Ok(())
    }

    /// Records a heartbeat of a worker, by the server's clock.
    pub(super) async fn beat(&self, worker: &str, length: Duration) -> Result<(), Failure> {
        let millis = i64::try_from(length.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let step = [doc! { "$set": { "until": { "$add": ["$$NOW", millis] }, "millis": millis } }];
        let workers = self.db.collection::<Document>(WORKERS);
        workers.update_one(doc! { "_id": worker }, step.to_vec()).upsert(true).await?;
        Ok(())
    }

    pub(super) async fn living(&self) -> Result<BTreeSet<String>, Failure> {
        let alive = doc! { "$expr": { "$and": [{ "$gt": ["$until", "$$NOW"] }, not_far_off()] } };
        let mut found = self.db.collection::<Document>(WORKERS).find(alive).await?;
        let mut living = BTreeSet::new();
        while found.advance().await? {
            living.insert(found.current().get_str("_id")?.to_owned());
        }
        Ok(living)
    }
}
