//! Which tasks can be claimed, and which documents are to be looked at, by the server's clock.
//!
//! One command tells the time and what is known of the reactions, another one finds the tasks of all of them: for each
//! reaction a walk along the index of due tasks that ends after as many as are wanted, and a look at its first entry.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::react::{Due, Registered, Task, Wanted};

use super::reactions;
use super::task::{decode, micros, time};
use crate::error::Failure;
use crate::schema::{REACTIONS, TASKS};
use crate::{Base, batch};

/// How many reactions are asked for in one command.
const MAX_REACTIONS: usize = 100;

impl Base {
    /// The server's time.
    pub(super) async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.now_and(Vec::new()).await?.0)
    }

    /// The server's time, and what more stages find.
    async fn now_and(&self, more: Vec<Document>) -> Result<(Timestamp, Vec<RawDocumentBuf>), Failure> {
        let mut pipeline = vec![doc! { "$documents": [{ "now": "$$NOW" }] }];
        pipeline.extend(more);
        let mut found = self.db.aggregate(pipeline).await?;
        let (mut now, mut others) = (None, Vec::new());
        while found.advance().await? {
            match found.current().get("now")?.and_then(bson::RawBsonRef::as_datetime) {
                Some(told) => now = Some(told),
                None => others.push(found.current().to_owned()),
            }
        }
        let now = now.ok_or_else(|| Failure::damaged("the server did not tell its time"))?;
        let now = Timestamp::from_millisecond(now.timestamp_millis());
        Ok((now.map_err(|error| Failure::damaged(error.to_string()))?, others))
    }

    pub(super) async fn due_tasks(&self, wanted: Vec<Wanted>) -> Result<Due, Failure> {
        let names: Vec<_> = wanted.iter().map(|wanted| wanted.reaction.as_str()).collect();
        let known = doc! { "coll": REACTIONS, "pipeline": [{ "$match": { "_id": { "$in": names } } }] };
        let (now, known) = self.now_and(vec![doc! { "$unionWith": known }]).await?;
        let known: HashMap<String, Registered> = known
            .iter()
            .map(|stored| reactions::decode(stored).map(|known| (known.name.clone(), known)))
            .collect::<Result<_, _>>()?;
        let codes = known.iter().map(|(name, known)| (name.clone(), known.code)).collect();
        let mut due = Due { now, codes, ..Due::default() };
        let running: Vec<_> = wanted
            .into_iter()
            .filter(|wanted| {
                wanted.most > 0 && !known.get(&wanted.reaction).is_some_and(|known| known.paused)
            })
            .map(|wanted| {
                let until = known.get(&wanted.reaction).and_then(|known| known.throttled);
                (wanted, until.filter(|until| *until > now))
            })
            .collect();
        for running in running.chunks(MAX_REACTIONS) {
            self.due_of(running, &mut due).await?;
        }
        if !due.tasks.is_empty() {
            point!("tasks-due");
        }
        Ok(due)
    }

    /// Finds the due tasks of reactions, each with the time until which it is throttled.
    async fn due_of(&self, wanted: &[(Wanted, Option<Timestamp>)], due: &mut Due) -> Result<(), Failure> {
        let mut pipelines = Vec::new();
        for (Wanted { reaction, version, most }, throttled) in wanted {
            let open =
                doc! { "_id.reaction": reaction, "open": true, "needs": { "$lte": i64::from(*version) } };
            if throttled.is_none() {
                let mut now = open.clone();
                now.insert("due", doc! { "$lte": micros(due.now) });
                pipelines.push(first(now, "due", *most));
            }
            let mut next = first(open, "due", 1);
            next.push(doc! { "$project": { "_id": 0, "next": "$due", "of": "$_id.reaction" } });
            pipelines.push(next);
        }
        let (tasks, firsts) = self.run_pipelines(pipelines).await?;
        for (Wanted { reaction, .. }, throttled) in wanted {
            let has_some = tasks.iter().any(|task| task.key.reaction == *reaction);
            if !has_some && let Some(first) = firsts.get(reaction) {
                let next = throttled.map_or(*first, |until| until.max(*first));
                due.next = Some(due.next.map_or(next, |other| other.min(next)));
            }
        }
        due.tasks.extend(tasks);
        Ok(())
    }

    pub(super) async fn tasks_to_check(&self, reactions: &[String], most: usize) -> Result<Due, Failure> {
        let mut due = Due { now: self.now().await?, ..Due::default() };
        for reactions in reactions.chunks(MAX_REACTIONS) {
            let of = |at: Document| doc! { "_id.reaction": { "$in": reactions }, "check_at": at };
            let mut pipelines = Vec::new();
            if most > 0 {
                pipelines.push(first(of(doc! { "$lte": micros(due.now) }), "check_at", most));
            }
            let mut next = first(of(doc! { "$exists": true }), "check_at", 1);
            next.push(doc! { "$project": { "_id": 0, "next": "$check_at", "of": "check" } });
            pipelines.push(next);
            let (tasks, firsts) = self.run_pipelines(pipelines).await?;
            due.tasks.extend(tasks);
            let next = firsts.into_values().filter(|first| *first > due.now);
            due.next = next.chain(due.next).min();
        }
        due.tasks.sort_by_key(|task| task.check_at);
        due.tasks.truncate(most);
        Ok(due)
    }

    /// The tasks that several pipelines find, one after the other, and when the next ones are, by what they are of.
    async fn run_pipelines(
        &self,
        pipelines: Vec<Vec<Document>>,
    ) -> Result<(Vec<Task>, HashMap<String, Timestamp>), Failure> {
        let (mut tasks, mut firsts) = (Vec::new(), HashMap::new());
        let Some(pipeline) = union(pipelines) else { return Ok((tasks, firsts)) };
        let collection = self.db.collection::<RawDocumentBuf>(TASKS);
        let mut found =
            collection.aggregate(pipeline).with_type::<RawDocumentBuf>().batch_size(batch(10_000)).await?;
        while found.advance().await? {
            let stored = found.current();
            match stored.get("next")?.and_then(bson::RawBsonRef::as_i64) {
                Some(next) => {
                    firsts.insert(stored.get_str("of")?.to_owned(), time(next)?);
                }
                None => tasks.push(decode(stored)?),
            }
        }
        Ok((tasks, firsts))
    }
}

/// The first of what matches, by a field that ends the index's walk.
fn first(matching: Document, by: &str, most: usize) -> Vec<Document> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    vec![doc! { "$match": matching }, doc! { "$sort": { by: 1 } }, doc! { "$limit": most }]
}

/// One pipeline that finds what all of these do. `None` if there are none.
fn union(pipelines: Vec<Vec<Document>>) -> Option<Vec<Document>> {
    let mut pipelines = pipelines.into_iter();
    let mut all = pipelines.next()?;
    all.extend(pipelines.map(|pipeline| {
        let stages: Vec<_> = pipeline.into_iter().map(Bson::Document).collect();
        doc! { "$unionWith": { "coll": TASKS, "pipeline": stages } }
    }));
    Some(all)
}
