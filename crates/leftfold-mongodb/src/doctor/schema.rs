//! Compares the indexes and views of the database with the definitions of this version.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use leftfold::Collection;
use leftfold::inspect::doctor::{Area, Finding};
use mongodb::IndexModel;

use crate::connection::Base;
use crate::documents::collections::visible;
use crate::documents::generations::LiveGeneration;
use crate::error::Failure;
use crate::schema::indexes::{self, ID_INDEX, is_same, make_by_hand, name};
use crate::schema::{EVENTS, GENERATIONS, TASKS, WORKERS, records};

/// Checks all indexes and views.
pub(super) async fn look(base: &Base) -> Result<Vec<Finding>, Failure> {
    let collections = collections(base).await?;
    let generations = generations(base).await?;
    let mut expected: Vec<(String, IndexModel)> = Vec::new();
    if base.has_transactions() {
        expected.extend(indexes::of_the_log().map(|index| (EVENTS.to_owned(), index)));
        expected.extend(indexes::of_sequences().map(|(collection, index)| (collection.to_owned(), index)));
    }
    if collections.contains_key(TASKS) {
        expected.extend(indexes::of_tasks().map(|index| (TASKS.to_owned(), index)));
        expected.push((WORKERS.to_owned(), indexes::of_workers()));
    }
    for (collection, live) in &generations {
        for part in [collection.generation(*live), collection.generation(*live).streams()] {
            expected.extend(indexes::of_records().map(|index| (records(&part), index)));
        }
    }
    let mut there = BTreeMap::new();
    let mut findings = Vec::new();
    for (collection, index) in &expected {
        if !there.contains_key(collection) {
            there.insert(collection, indexes::there(&base.db, collection).await?);
        }
        findings.extend(judge_index(collection, index, &there[collection]));
    }
    for (collection, live) in &generations {
        findings.extend(judge_view(collection, *live, collections.get(collection.as_str())));
    }
    if findings.is_empty() {
        let found = format!("all {} exist, and all views", expected.len());
        findings.push(Finding::fine(Area::Schema, "indexes", found));
    }
    Ok(findings)
}

/// Returns the collections and views of the database, by name.
async fn collections(base: &Base) -> Result<BTreeMap<String, Document>, Failure> {
    let mut found = base.db.list_collections().await?;
    let mut all = BTreeMap::new();
    while found.advance().await? {
        let collection = Document::try_from(found.current())?;
        all.insert(collection.get_str("name").unwrap_or_default().to_owned(), collection);
    }
    Ok(all)
}

/// Returns the collections of projections that have run, with their live generations.
pub(super) async fn generations(base: &Base) -> Result<Vec<(Collection, u32)>, Failure> {
    let mut found = base.db.collection::<Document>(GENERATIONS).find(doc! {}).sort(doc! { "_id": 1 }).await?;
    let mut all = Vec::new();
    while found.advance().await? {
        let stored = Document::try_from(found.current())?;
        let name = stored.get_str("_id").unwrap_or_default();
        let collection = Collection::new(name).map_err(|invalid| Failure::damaged(invalid.to_string()))?;
        all.push((collection, LiveGeneration::read(&stored)?.live));
    }
    Ok(all)
}

/// Judges an expected index. Returns `None` if it exists and is correct.
fn judge_index(collection: &str, index: &IndexModel, there: &[IndexModel]) -> Option<Finding> {
    let (subject, name) = (format!("{} of {collection}", name(index)), name(index));
    let of_the_log = collection == EVENTS;
    let named = there.iter().find(|other| indexes::name(other) == name);
    // No query names the index of event ids, so it may have any name.
    let by_name = name != ID_INDEX;
    if there.iter().any(|other| is_same(other, index) && (!by_name || indexes::name(other) == name)) {
        return None;
    }
    let found = match named {
        Some(_) => "the index differs from the one that Leftfold creates: another program has changed it",
        None => "the index is missing, and queries that use it fail",
    };
    let drop = format!("db.getCollection(\"{collection}\").dropIndex(\"{name}\")");
    let advice = match (named.is_some(), of_the_log) {
        (false, true) => make_by_hand(collection, index),
        (true, true) => format!("{}, after {drop}", make_by_hand(collection, index)),
        (false, false) => {
            "restart a process that uses Leftfold on this database, which creates it".to_owned()
        }
        (true, false) => format!("{drop}, and restart a process that uses Leftfold, which creates it again"),
    };
    Some(Finding::wrong(Area::Schema, subject, found, advice))
}

/// Judges the view of a projection. Returns `None` if it shows the live generation.
fn judge_view(collection: &Collection, live: u32, there: Option<&Document>) -> Option<Finding> {
    let expected = records(&collection.generation(live));
    let again = "start the projection again, which creates the view";
    let say = |found: String, advice: &str| {
        Some(Finding::wrong(Area::Schema, format!("view {collection}"), found, advice))
    };
    let Some(there) = there else {
        return say("it is missing, so readers can't find the documents".to_owned(), again);
    };
    let options = there.get_document("options").ok();
    let Some(on) = options.and_then(|options| options.get_str("viewOn").ok()) else {
        let advice = "rename it, and start the projection again, which creates the view";
        return say("another object has its name".to_owned(), advice);
    };
    if on != expected {
        return say(format!("it shows {on}, but {expected} is live"), again);
    }
    let visible: Vec<_> = visible().into_iter().map(Bson::Document).collect();
    if options.and_then(|options| options.get_array("pipeline").ok()) != Some(&visible) {
        let advice = "drop it, and start the projection again, which creates it";
        return say("another program has changed its filter".to_owned(), advice);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_the_log_is_made_by_hand_and_others_by_themselves() {
        let [stream, _] = indexes::of_the_log();
        assert_eq!(judge_index(EVENTS, &stream, std::slice::from_ref(&stream)), None);
        let missing = judge_index(EVENTS, &stream, &[]).unwrap();
        assert!(
            missing
                .advice
                .unwrap()
                .contains("createIndex({ \"stream\": 1, \"revision\": -1 }, { unique: true")
        );
        let mut plain = stream.clone();
        plain.options.as_mut().unwrap().unique = None;
        let changed = judge_index(EVENTS, &stream, &[plain]).unwrap();
        assert!(changed.advice.unwrap().ends_with("dropIndex(\"leftfold_stream_revision\")"));
        let [due, ..] = indexes::of_tasks();
        assert!(judge_index(TASKS, &due, &[]).unwrap().advice.unwrap().contains("restart a process"));
        let mut whole = due.clone();
        whole.options.as_mut().unwrap().partial_filter_expression = None;
        assert!(judge_index(TASKS, &due, &[whole]).unwrap().found.contains("differs from the one"));
    }

    #[test]
    fn a_view_shows_what_is_live_and_nothing_more() {
        let cart = Collection::new("cart").unwrap();
        let view =
            |on: &str, pipeline: Vec<Document>| doc! { "options": { "viewOn": on, "pipeline": pipeline } };
        let is_reported = |live: u32, there: Option<&Document>| judge_view(&cart, live, there).is_some();
        assert!(!is_reported(0, Some(&view("leftfold.docs.cart", visible()))));
        assert!(is_reported(2, Some(&view("leftfold.docs.cart", visible()))));
        assert!(!is_reported(2, Some(&view("leftfold.docs.cart~2", visible()))));
        assert!(is_reported(0, Some(&view("leftfold.docs.cart", vec![]))));
        assert!(is_reported(0, Some(&doc! { "options": {} })));
        assert!(is_reported(0, None));
    }
}
