//! Counters: one document each, which also stores the last draw of each client. A draw is a single
//! update, so counters need no transactions.

use bson::{Document, doc};
use leftfold::Result;
use leftfold::revision::{Counters, Draw, REMEMBERED_CLIENTS};
use mongodb::options::ReturnDocument;

use crate::Mongo;
use crate::connection::Base;
use crate::error::{Failure, is_duplicate};
use crate::schema::COUNTERS;

impl Counters for Mongo {
    async fn draw(&self, draw: Draw) -> Result<u64> {
        let base = &self.inner.base;
        base.run("draw numbers in", base.draw(&draw)).await
    }
}

impl Base {
    async fn draw(&self, draw: &Draw) -> Result<u64, Failure> {
        let number = |number: u64| i64::try_from(number).map_err(|error| Failure::damaged(error.to_string()));
        let (count, request) = (number(draw.count)?, number(draw.request)?);
        let most = i32::try_from(REMEMBERED_CLIENTS).unwrap_or(i32::MAX);
        let client = doc! { "$literal": &draw.client };
        let draws = doc! { "$ifNull": ["$draws", []] };
        let is_ours = doc! { "$eq": ["$$draw.client", &client] };
        let is_answered = doc! { "$and": [&is_ours, { "$eq": ["$$draw.request", request] }] };
        let answered = doc! { "$filter": { "input": &draws, "as": "draw", "cond": is_answered } };
        let others = doc! { "$filter": { "input": &draws, "as": "draw", "cond": { "$not": [is_ours] } } };
        let last = doc! { "$ifNull": ["$last", 0_i64] };
        let answer = doc! { "client": client, "request": request, "first": { "$add": [&last, 1_i64] } };
        let changed = doc! {
            "last": { "$add": [last, count] },
            "draws": { "$slice": [{ "$concatArrays": [[answer], others] }, most] },
        };
        // A repeated request changes nothing.
        let update = [doc! { "$replaceWith": { "$cond": [
            { "$gt": [{ "$size": answered }, 0] },
            "$$ROOT",
            { "$mergeObjects": ["$$ROOT", changed] },
        ] } }];
        let counters = self.db.collection::<Document>(COUNTERS);
        let stored = loop {
            let update = counters.find_one_and_update(doc! { "_id": &draw.counter }, update.to_vec());
            match update.upsert(true).return_document(ReturnDocument::After).await {
                Ok(stored) => break stored,
                // Another client created the counter at the same time.
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let damaged = || Failure::damaged(format!("counter {} does not record its last draw", draw.counter));
        let stored = stored.ok_or_else(damaged)?;
        let draws =
            stored.get_array("draws").map_err(|_| damaged())?.iter().filter_map(bson::Bson::as_document);
        let ours =
            draws.into_iter().find(|drawn| drawn.get_str("client").is_ok_and(|client| client == draw.client));
        Ok(ours.ok_or_else(damaged)?.get_i64("first").map_err(|_| damaged())?.unsigned_abs())
    }
}
