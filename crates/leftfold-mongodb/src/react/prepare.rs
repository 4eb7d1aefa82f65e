//! Preparing a database for reactions: a server with change streams, collections, indexes, and
//! documents to follow.

use std::collections::BTreeMap;

use bson::{Document, doc};
use leftfold::react::DocumentSource;
use leftfold::{Error, Kind, Result};
use mongodb::options::ReturnDocument;

use super::documents::collection_of;
use crate::connection::Base;
use crate::error::{Failure, code, is_duplicate};
use crate::schema::indexes;
use crate::schema::{FEEDS, META, REACTIONS, TASKS, WAKES, WORKERS, create};

/// The storage format of tasks. It increases when older versions can't read the data of newer ones.
const FORMAT: i32 = 1;
/// Codes for an index whose name or keys another index has.
const OTHER_INDEX: [i32; 2] = [85, 86];

/// Creates the collections for tasks, and checks that these documents can be followed.
pub(super) async fn prepare(base: &Base, on: &[DocumentSource]) -> Result<()> {
    if !base.has_transactions() {
        let message = format!(
            "could not run reactions in {}: they follow change streams, and this server is not a replica set; start it with \
             --replSet and run rs.initiate(), one member is enough",
            base.place
        );
        return Err(Error::new(Kind::Store, message));
    }
    let format = base.run("read the format of reactions in", format(base)).await?;
    if format != FORMAT {
        let message = format!(
            "could not run reactions in {}: their tasks have format {format}, and this version of Leftfold reads format \
             {FORMAT}; use the version of Leftfold that created them, or a newer one",
            base.place
        );
        return Err(Error::new(Kind::Format, message));
    }
    base.run("create the collections of reactions in", make(base)).await?;
    check_followed(base, on).await
}

/// Returns the stored format, and stores the current one if there is none yet.
async fn format(base: &Base) -> Result<i32, Failure> {
    let metas = base.db.collection::<Document>(META);
    let new = doc! { "$setOnInsert": { "format": FORMAT } };
    loop {
        let meta = metas.find_one_and_update(doc! { "_id": "reactions" }, new.clone());
        match meta.upsert(true).return_document(ReturnDocument::After).await {
            Ok(meta) => return Ok(meta.and_then(|meta| meta.get_i32("format").ok()).unwrap_or(0)),
            // Another client created it at the same time.
            Err(error) if is_duplicate(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Creates collections and indexes. A server refuses an index whose name or keys belong to another
/// one, so existing indexes are known to be right.
async fn make(base: &Base) -> Result<(), Failure> {
    for name in [TASKS, REACTIONS, FEEDS, WAKES, WORKERS] {
        create(&base.db, name).await?;
    }
    base.db.collection::<Document>(WORKERS).create_index(indexes::of_workers()).await?;
    base.db.collection::<Document>(TASKS).create_indexes(indexes::of_tasks()).await.map_err(|error| {
        match code(&error) {
            Some((code, report)) if OTHER_INDEX.contains(&code) => {
                let advice = "another program has changed an index of leftfold.tasks: drop it, and Leftfold creates it again";
                Failure::new(Kind::Format, advice, report)
            }
            _ => error.into(),
        }
    })?;
    Ok(())
}

/// Fails if one of the names is not a collection, because only collections have change streams. A
/// missing collection is fine: its changes are reported once it exists.
async fn check_followed(base: &Base, on: &[DocumentSource]) -> Result<()> {
    let mut names = BTreeMap::new();
    for on in on {
        names.insert(base.run("read the generations in", collection_of(base, on)).await?.0, on);
    }
    let look = async {
        let filter =
            doc! { "name": { "$in": names.keys().collect::<Vec<_>>() }, "type": { "$ne": "collection" } };
        let mut found = base.db.list_collections().filter(filter).await?;
        if !found.advance().await? {
            return Ok(None);
        }
        let found = Document::try_from(found.current())?;
        let text = |field: &str| found.get_str(field).unwrap_or_default().to_owned();
        Ok(Some((text("name"), text("type"))))
    };
    let Some((name, kind)) = base.run("list the collections of", look).await? else { return Ok(()) };
    let on = names.get(&name).map_or_else(|| name.clone(), ToString::to_string);
    let message = format!(
        "could not follow {on} in {}: it is a {kind}, and MongoDB reports no changes of it; react to the collection behind it",
        base.place
    );
    Err(Error::new(Kind::Invalid, message))
}
