//! Tasks for people who look at them: lists and counts. Each query walks along an index in the order of its answer.

use std::collections::BTreeMap;

use bson::{Bson, Document, RawDocumentBuf, Regex, doc};
use leftfold::react::{Depth, Query, State, Task, TaskKey};
use mongodb::options::Hint;

use super::task::{decode, key, micros, state, state_of, time};
use super::{DOCUMENT_INDEX, DUE_INDEX, STATE_INDEX};
use crate::error::Failure;
use crate::schema::TASKS;
use crate::{Base, batch};

impl Base {
    pub(super) async fn list_tasks(
        &self,
        query: &Query,
        after: Option<&TaskKey>,
        most: usize,
    ) -> Result<Vec<Task>, Failure> {
        // For MongoDB, none is no limit.
        if most == 0 {
            return Ok(Vec::new());
        }
        let Plan { filter, order, index } = plan(query, after)?;
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        let find = tasks.find(filter).sort(order).hint(Hint::Name(index.to_owned()));
        let find = find.limit(i64::try_from(most).unwrap_or(i64::MAX));
        let mut found = find.batch_size(batch(most)).await?;
        let mut list = Vec::new();
        while found.advance().await? {
            list.push(decode(found.current())?);
        }
        Ok(list)
    }

    pub(super) async fn task_depths(&self) -> Result<BTreeMap<String, Depth>, Failure> {
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        let by_state =
            doc! { "_id": { "reaction": "$_id.reaction", "state": "$state" }, "count": { "$sum": 1_i64 } };
        let counted = tasks.aggregate([doc! { "$group": by_state }]).hint(Hint::Name(STATE_INDEX.to_owned()));
        let mut counted = counted.with_type::<RawDocumentBuf>().await?;
        let mut depths: BTreeMap<String, Depth> = BTreeMap::new();
        while counted.advance().await? {
            let group = counted.current().get_document("_id")?;
            let count = counted.current().get_i64("count")?.unsigned_abs();
            let depth = depths.entry(group.get_str("reaction")?.to_owned()).or_default();
            depth.states.insert(state_of(group.get_str("state")?)?, count);
        }
        // Whatever its reaction: without that, a server would not walk along the index alone.
        let due = doc! {
            "_id.reaction": { "$gte": "" },
            "open": true,
            "state": state(State::Pending),
            "due": { "$lte": micros(self.now().await?) },
        };
        let oldest = doc! { "_id": "$_id.reaction", "due": { "$min": "$due" } };
        let oldest = tasks.aggregate([doc! { "$match": due }, doc! { "$group": oldest }]);
        let oldest = oldest.hint(Hint::Name(DUE_INDEX.to_owned()));
        let mut oldest = oldest.with_type::<RawDocumentBuf>().await?;
        while oldest.advance().await? {
            let stored = oldest.current();
            // One that has come since the tasks were counted is counted the next time.
            if let Some(depth) = depths.get_mut(stored.get_str("_id")?) {
                depth.oldest_due = Some(time(stored.get_i64("due")?)?);
            }
        }
        Ok(depths)
    }
}

/// How a list is read.
#[derive(Debug, PartialEq)]
struct Plan {
    filter: Document,
    order: Document,
    index: &'static str,
}

fn plan(query: &Query, after: Option<&TaskKey>) -> Result<Plan, Failure> {
    let Query { reaction, document, states, error, changed_before } = query;
    let mut all = Vec::new();
    if !states.is_empty() {
        all.push(doc! { "state": { "$in": states.iter().map(|one| state(*one)).collect::<Vec<_>>() } });
    }
    if let Some(text) = error {
        all.push(doc! { "error": containing(text)? });
    }
    if let Some(before) = changed_before {
        all.push(doc! { "changed_at": { "$lt": micros(*before) } });
    }
    let (order, index) = if let Some(document) = document {
        all.push(doc! { "_id.document": document.as_str() });
        all.extend(reaction.as_ref().map(|reaction| doc! { "_id.reaction": reaction }));
        if let Some(after) = after {
            let beyond = if *document > after.document { "$gte" } else { "$gt" };
            all.push(doc! { "_id.reaction": { beyond: &after.reaction } });
        }
        (doc! { "_id.reaction": 1 }, DOCUMENT_INDEX)
    } else if states.is_empty() {
        if let Some(reaction) = reaction {
            let end = doc! { "reaction": reaction, "document": Bson::MaxKey };
            all.push(doc! { "_id": { "$gt": { "reaction": reaction }, "$lt": end } });
        }
        all.extend(after.map(|after| doc! { "_id": { "$gt": key(after) } }));
        (doc! { "_id": 1 }, "_id_")
    } else {
        all.extend(reaction.as_ref().map(|reaction| doc! { "_id.reaction": reaction }));
        if let Some(after) = after {
            let same =
                doc! { "_id.reaction": &after.reaction, "_id.document": { "$gt": after.document.as_str() } };
            if reaction.as_ref() == Some(&after.reaction) {
                all.push(same);
            } else {
                all.push(doc! { "_id.reaction": { "$gte": &after.reaction } });
                all.push(doc! { "$or": [{ "_id.reaction": { "$gt": &after.reaction } }, same] });
            }
        }
        (doc! { "_id.reaction": 1, "_id.document": 1 }, STATE_INDEX)
    };
    let filter = if all.is_empty() {
        Document::new()
    } else {
        doc! { "$and": all }
    };
    Ok(Plan { filter, order, index })
}

/// What contains a text, in whatever case.
fn containing(text: &str) -> Result<Regex, Failure> {
    let mut pattern = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            // A pattern ends with the first of them.
            '\0' => pattern.push_str("\\x00"),
            c if c.is_ascii_punctuation() => pattern.extend(['\\', c]),
            c => pattern.push(c),
        }
    }
    Ok(Regex { pattern: pattern.try_into()?, options: "i".to_owned().try_into()? })
}
