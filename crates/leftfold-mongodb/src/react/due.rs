//! Queries for claimable tasks and for documents to check, by the store's time. That time follows
//! the server's clock, but never goes back when the clock is set back.
//!
//! One command reads the time, the registered reactions, and the first entry of each reaction in
//! the index of due tasks. Only if one of them is due, a second command reads the tasks. For each
//! reaction it walks along that index up to the wanted number.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::react::{DueTasks, Registered, Suspicion, Task, WantedTasks};

use super::record::{SUSPECT, decode, micros, time};
use super::registry;
use crate::connection::{Base, batch};
use crate::error::Failure;
use crate::schema::{REACTIONS, TASKS};

/// The largest number of reactions in one command.
const MAX_REACTIONS: usize = 100;

impl Base {
    /// Returns the store's time.
    pub(super) async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.glance(Vec::new()).await?.now)
    }

    /// Reads the store's time and the results of further pipelines, in one command.
    async fn glance(&self, more: Vec<(&str, Vec<Document>)>) -> Result<Glance, Failure> {
        let mut pipeline = vec![doc! { "$documents": [{ "now": "$$NOW" }] }];
        pipeline.extend(
            more.into_iter()
                .map(|(from, stages)| doc! { "$unionWith": { "coll": from, "pipeline": stages } }),
        );
        let mut found = self.db.aggregate(pipeline).await?;
        let (mut now, mut known, mut firsts) = (None, HashMap::new(), HashMap::new());
        let mut suspects = Vec::new();
        while found.advance().await? {
            let stored = found.current();
            if let Some(time) = stored.get("now")?.and_then(bson::RawBsonRef::as_datetime) {
                now = Some(time);
            } else if let Some(suspect) = FirstSuspect::decode(stored)? {
                suspects.push(suspect);
            } else if let Some(first) = stored.get("first")?.and_then(bson::RawBsonRef::as_i64) {
                firsts.insert(stored.get_str("of")?.to_owned(), time(first)?);
            } else {
                let registered = registry::decode(stored)?;
                known.insert(registered.name.clone(), registered);
            }
        }
        let now = now.ok_or_else(|| Failure::damaged("the server did not report its time"))?;
        let now = Timestamp::from_millisecond(now.timestamp_millis());
        let now = self.store_time(now.map_err(|error| Failure::damaged(error.to_string()))?).await?;
        Ok(Glance { now, known, firsts, suspects })
    }

    pub(super) async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks, Failure> {
        let mut due = DueTasks::default();
        for wanted in wanted.chunks(MAX_REACTIONS) {
            self.due_of(wanted, &mut due).await?;
        }
        if !due.tasks.is_empty() {
            point!("tasks-due");
        }
        Ok(due)
    }

    async fn due_of(&self, wanted: &[WantedTasks], due: &mut DueTasks) -> Result<(), Failure> {
        let names: Vec<_> = wanted.iter().map(|wanted| wanted.reaction.as_str()).collect();
        let mut more = vec![(REACTIONS, vec![doc! { "$match": { "_id": { "$in": &names } } }])];
        more.extend(wanted.iter().map(|one| (TASKS, first_of(open(one), "due", &one.reaction))));
        if wanted.iter().any(|one| one.suspicion == Suspicion::None) {
            more.push((TASKS, first_suspects(&names)));
        }
        let Glance { now, known, firsts, suspects } = self.glance(more).await?;
        due.now = now;
        due.codes.extend(known.iter().map(|(name, known)| (name.clone(), known.code)));
        for suspect in suspects {
            let wanted = wanted.iter().find(|one| one.reaction == suspect.reaction);
            let known = known.get(&suspect.reaction);
            let is_wanted = wanted.is_some_and(|one| suspect.needs <= i64::from(one.version));
            if is_wanted && known.is_none_or(|known| !known.paused) {
                let at = known.and_then(|known| known.throttled).max(Some(suspect.due)).unwrap_or(now);
                let first = due.suspects.entry(suspect.level).or_insert(at);
                *first = at.min(*first);
            }
        }
        let mut next = Vec::new();
        let mut pipelines = Vec::new();
        for one in wanted {
            let Some(first) = firsts.get(&one.reaction) else { continue };
            let known = known.get(&one.reaction);
            if one.most == 0 || known.is_some_and(|known| known.paused) {
                continue;
            }
            match known.and_then(|known| known.throttled).filter(|until| *until > now) {
                Some(until) => next.push(until.max(*first)),
                None if *first > now => next.push(*first),
                None => {
                    let mut due = open(one);
                    due.insert("due", doc! { "$lte": micros(now) });
                    pipelines.push(some_of(due, "due", one.most));
                }
            }
        }
        due.next = next.into_iter().chain(due.next).min();
        due.tasks.extend(self.run_pipelines(pipelines).await?);
        Ok(())
    }

    pub(super) async fn tasks_to_check(
        &self,
        reactions: &[String],
        most: usize,
    ) -> Result<DueTasks, Failure> {
        const CHECK: &str = "check";
        let mut due = DueTasks::default();
        for reactions in reactions.chunks(MAX_REACTIONS) {
            let of = |at: Document| doc! { "_id.reaction": { "$in": reactions }, "check_at": at };
            let first = first_of(of(doc! { "$exists": true }), "check_at", CHECK);
            let Glance { now, firsts, .. } = self.glance(vec![(TASKS, first)]).await?;
            due.now = now;
            match firsts.get(CHECK) {
                Some(first) if *first > now => due.next = due.next.into_iter().chain([*first]).min(),
                Some(_) if most > 0 => {
                    let pipeline = some_of(of(doc! { "$lte": micros(now) }), "check_at", most);
                    due.tasks.extend(self.run_pipelines(vec![pipeline]).await?);
                }
                _ => {}
            }
        }
        due.tasks.sort_by_key(|task| task.check_at);
        due.tasks.truncate(most);
        Ok(due)
    }

    /// Returns the tasks that several pipelines find, in order.
    async fn run_pipelines(&self, pipelines: Vec<Vec<Document>>) -> Result<Vec<Task>, Failure> {
        let mut tasks = Vec::new();
        let Some(pipeline) = union(pipelines) else { return Ok(tasks) };
        let collection = self.db.collection::<RawDocumentBuf>(TASKS);
        let mut found =
            collection.aggregate(pipeline).with_type::<RawDocumentBuf>().batch_size(batch(10_000)).await?;
        while found.advance().await? {
            tasks.push(decode(found.current())?);
        }
        Ok(tasks)
    }
}

/// The result of a glance.
struct Glance {
    now: Timestamp,
    /// The registered reactions, by name.
    known: HashMap<String, Registered>,
    /// The earliest times, by the label that [`first_of`] gives them.
    firsts: HashMap<String, Timestamp>,
    /// The first due suspects.
    suspects: Vec<FirstSuspect>,
}

/// The earliest suspect of a reaction with one level and one needed version.
struct FirstSuspect {
    reaction: String,
    level: Suspicion,
    needs: i64,
    due: Timestamp,
}

impl FirstSuspect {
    /// Decodes a result of [`first_suspects`]. Returns `None` for other results.
    fn decode(stored: &RawDocument) -> Result<Option<Self>, Failure> {
        let Some(due) = stored.get("suspect")?.and_then(bson::RawBsonRef::as_i64) else { return Ok(None) };
        let group = stored.get_document("_id")?;
        let number = group.get_i32("level")?;
        let level = Suspicion::SUSPECTS.into_iter().find(|level| i32::from(level.level()) == number);
        let level = level.ok_or_else(|| Failure::damaged(format!("a task has the suspicion {number}")))?;
        let reaction = group.get_str("reaction")?.to_owned();
        Ok(Some(Self { reaction, level, needs: group.get_i64("needs")? % SUSPECT, due: time(due)? }))
    }
}

/// Builds the pipeline for the first suspects of these reactions, by level and needed version.
fn first_suspects(reactions: &[&str]) -> Vec<Document> {
    let matching = doc! { "_id.reaction": { "$in": reactions }, "suspicion": { "$exists": true } };
    let group = doc! { "reaction": "$_id.reaction", "level": "$suspicion", "needs": "$needs" };
    vec![doc! { "$match": matching }, doc! { "$group": { "_id": group, "suspect": { "$min": "$due" } } }]
}

/// Returns the filter for tasks that can be claimed now or later.
fn open(wanted: &WantedTasks) -> Document {
    let WantedTasks { reaction, version, suspicion, .. } = wanted;
    let version = i64::from(*version);
    if *suspicion == Suspicion::None {
        return doc! { "_id.reaction": reaction, "open": true, "needs": { "$lte": version } };
    }
    let level = i32::from(suspicion.level());
    doc! { "_id.reaction": reaction, "suspicion": level, "needs": { "$lte": version + SUSPECT } }
}

/// Builds the pipeline for the earliest time of the matching documents, at the start of an index.
fn first_of(matching: Document, by: &str, of: &str) -> Vec<Document> {
    let mut stages = some_of(matching, by, 1);
    stages.push(doc! { "$project": { "_id": 0, "first": format!("${by}"), "of": { "$literal": of } } });
    stages
}

/// Builds the pipeline for the first matching documents, sorted by the index's field, so that the
/// walk ends early.
fn some_of(matching: Document, by: &str, most: usize) -> Vec<Document> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    vec![doc! { "$match": matching }, doc! { "$sort": { by: 1 } }, doc! { "$limit": most }]
}

/// Combines pipelines into one. Returns `None` if there are none.
fn union(pipelines: Vec<Vec<Document>>) -> Option<Vec<Document>> {
    let mut pipelines = pipelines.into_iter();
    let mut all = pipelines.next()?;
    all.extend(pipelines.map(|pipeline| {
        let stages: Vec<_> = pipeline.into_iter().map(Bson::Document).collect();
        doc! { "$unionWith": { "coll": TASKS, "pipeline": stages } }
    }));
    Some(all)
}
