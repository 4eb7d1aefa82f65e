//! Lists and counts of tasks for operators. Each query walks along an index in the order of its
//! result.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, RawDocumentBuf, Regex, doc};
use leftfold::react::{Depth, Query, State, Task, TaskKey};
use mongodb::options::Hint;

use super::record::{closed, decode, is_open, key, micros, state, state_of, time};
use crate::connection::{Base, batch};
use crate::error::Failure;
use crate::schema::TASKS;
use crate::schema::indexes::{CLOSED_INDEX, DUE_INDEX};

impl Base {
    pub(super) async fn list_tasks(
        &self,
        query: &Query,
        after: Option<&TaskKey>,
        most: usize,
    ) -> Result<Vec<Task>, Failure> {
        // MongoDB treats a limit of 0 as no limit.
        if most == 0 {
            return Ok(Vec::new());
        }
        let names = match query {
            Query { document: Some(_), reaction: None, .. } => self.names_of_reactions().await?,
            Query { reaction, .. } => reaction.iter().cloned().collect(),
        };
        if query.document.is_none() && query.states.len() > 1 && !query.states.iter().any(|one| is_open(*one))
        {
            return self.list_states(query, after, most).await;
        }
        self.list_some(plan(query, &names, after)?, most).await
    }

    /// Lists the tasks of several states: one ordered index walk per state.
    async fn list_states(
        &self,
        query: &Query,
        after: Option<&TaskKey>,
        most: usize,
    ) -> Result<Vec<Task>, Failure> {
        let states: BTreeSet<_> = query.states.iter().copied().collect();
        let mut list = Vec::new();
        for one in states {
            let query = Query { states: vec![one], ..query.clone() };
            list.extend(self.list_some(plan(&query, &[], after)?, most).await?);
        }
        list.sort_by(|one, other| one.key.cmp(&other.key));
        list.truncate(most);
        Ok(list)
    }

    async fn list_some(&self, plan: Plan, most: usize) -> Result<Vec<Task>, Failure> {
        let Plan { filter, order, index } = plan;
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
        // This range matches all reactions. Without it, the server would not use the index alone.
        let open = doc! { "_id.reaction": { "$gte": "" }, "open": true };
        let ended = doc! { "state": { "$in": closed() } };
        let mut depths: BTreeMap<String, Depth> = BTreeMap::new();
        for (some, index) in [(open.clone(), DUE_INDEX), (ended, CLOSED_INDEX)] {
            let counted = tasks.aggregate([doc! { "$match": some }, doc! { "$group": by_state.clone() }]);
            let counted = counted.hint(Hint::Name(index.to_owned()));
            let mut counted = counted.with_type::<RawDocumentBuf>().await?;
            while counted.advance().await? {
                let group = counted.current().get_document("_id")?;
                let count = counted.current().get_i64("count")?.unsigned_abs();
                let depth = depths.entry(group.get_str("reaction")?.to_owned()).or_default();
                depth.states.insert(state_of(group.get_str("state")?)?, count);
            }
        }
        let mut due = open;
        due.extend(doc! {
            "state": state(State::Pending),
            "due": { "$lte": micros(self.now().await?) },
        });
        let oldest = doc! { "_id": "$_id.reaction", "due": { "$min": "$due" } };
        let oldest = tasks.aggregate([doc! { "$match": due }, doc! { "$group": oldest }]);
        let oldest = oldest.hint(Hint::Name(DUE_INDEX.to_owned()));
        let mut oldest = oldest.with_type::<RawDocumentBuf>().await?;
        while oldest.advance().await? {
            let stored = oldest.current();
            // A reaction whose first task came after the count appears in the next count.
            if let Some(depth) = depths.get_mut(stored.get_str("_id")?) {
                depth.oldest_due = Some(time(stored.get_i64("due")?)?);
            }
        }
        Ok(depths)
    }

    async fn names_of_reactions(&self) -> Result<Vec<String>, Failure> {
        Ok(self.registered().await?.into_iter().map(|registered| registered.name).collect())
    }
}

/// The query plan of a list.
#[derive(Debug, PartialEq)]
struct Plan {
    filter: Document,
    order: Document,
    index: &'static str,
}

/// Plans a list. `names` are the reactions in question, if the query names one or asks for one
/// document.
fn plan(query: &Query, names: &[String], after: Option<&TaskKey>) -> Result<Plan, Failure> {
    let Query { reaction, document, states, error, changed_before } = query;
    let is_closed = |one: &State| !is_open(*one);
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
        let of = |name: &String| doc! { "reaction": name, "document": document.as_str() };
        all.push(doc! { "_id": { "$in": names.iter().map(of).collect::<Vec<_>>() } });
        all.extend(after.map(|after| doc! { "_id": { "$gt": key(after) } }));
        (doc! { "_id": 1 }, "_id_")
    } else if states.is_empty() || !states.iter().all(is_closed) && !states.iter().all(|one| is_open(*one)) {
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
        let are_closed = states.iter().all(is_closed);
        if !are_closed {
            all.push(doc! { "open": true });
        }
        (doc! { "_id.reaction": 1, "_id.document": 1 }, if are_closed { CLOSED_INDEX } else { DUE_INDEX })
    };
    let filter = if all.is_empty() {
        Document::new()
    } else {
        doc! { "$and": all }
    };
    Ok(Plan { filter, order, index })
}

/// Returns a case-insensitive pattern for a text.
fn containing(text: &str) -> Result<Regex, Failure> {
    let mut pattern = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            // A zero character would end the pattern.
            '\0' => pattern.push_str("\\x00"),
            c if c.is_ascii_punctuation() => pattern.extend(['\\', c]),
            c => pattern.push(c),
        }
    }
    Ok(Regex { pattern: pattern.try_into()?, options: "i".to_owned().try_into()? })
}
