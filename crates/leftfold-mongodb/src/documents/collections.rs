//! Collections of projections: their records, and the view with the collection's name.

use bson::{Document, doc};
use leftfold::{Collection, Error, Kind, Result};

use crate::connection::{Base, with_timeout};
use crate::error::Failure;
use crate::schema::{create, indexes, records};

/// The field that hides a record from a view.
const VISIBLE: &str = "_fold.gone";

/// Creates the records of a collection, their indexes, and the view with the collection's name.
pub(crate) async fn prepare(base: &Base, collection: &Collection) -> Result<()> {
    let failed =
        |failure: Failure| failure.to_error(&format!("create collection {collection} in"), &base.place);
    let generation = with_timeout(base.named(collection)).await.map_err(failed)?;
    for part in [generation.clone(), generation.streams()] {
        let name = records(&part);
        create(&base.db, &name).await.map_err(failed)?;
        let indexed = base.db.collection::<Document>(&name).create_indexes(indexes::of_records()).await;
        indexed.map_err(|error| failed(error.into()))?;
    }
    if collection.is_hidden() {
        return Ok(());
    }
    make_view(base, collection).await
}

/// Returns the pipeline of a view, which leaves out hidden records.
pub(crate) fn visible() -> Vec<Document> {
    vec![doc! { "$match": { VISIBLE: { "$exists": false } } }]
}

/// Creates the view of the live generation, or redirects a view of another generation. Fails if
/// something else has that name.
pub(crate) async fn make_view(base: &Base, collection: &Collection) -> Result<()> {
    let failed = |error: mongodb::error::Error| {
        Failure::from(error).to_error(&format!("create view {collection} in"), &base.place)
    };
    let doing = format!("create view {collection} in");
    let first = records(&collection.generation(0));
    let records = records(&base.run(&doing, base.named(collection)).await?);
    let pipeline = visible();
    let name = collection.as_str();
    let created = base.db.create_collection(name).view_on(records.clone()).pipeline(pipeline.clone()).await;
    let Err(error) = created else { return Ok(()) };
    let mut found = base.db.list_collections().filter(doc! { "name": name }).await.map_err(failed)?;
    if !found.advance().await.map_err(failed)? {
        return Err(failed(error));
    }
    let found = Document::try_from(found.current()).map_err(|error| {
        Failure::from(error).to_error(&format!("create view {collection} in"), &base.place)
    })?;
    let view_on = found.get_document("options").and_then(|options| options.get_str("viewOn"));
    if let Ok(on) = view_on {
        if on == records {
            return Ok(());
        }
        if on == first || on.strip_prefix(&first).is_some_and(|rest| rest.starts_with('~')) {
            return change_view(base, collection, &records).await;
        }
    }
    let message = format!(
        "could not create view {name} in {}: there is a {} of that name that Leftfold did not make; give the \
         projection another name, or rename it",
        base.place,
        found.get_str("type").unwrap_or("collection"),
    );
    Err(Error::new(Kind::Conflict, message))
}

/// Checks that the user may change the view of the live generation, by setting it to its current
/// definition.
pub(crate) async fn may_change_view(base: &Base, collection: &Collection) -> Result<()> {
    let doing = format!("change view {collection} in");
    let records = records(&base.run(&doing, base.named(collection)).await?);
    change_view(base, collection, &records).await
}

async fn change_view(base: &Base, collection: &Collection, records: &str) -> Result<()> {
    let change = doc! { "collMod": collection.as_str(), "viewOn": records, "pipeline": visible() };
    let changed = base.db.run_command(change).await.map(drop);
    changed
        .map_err(|error| Failure::from(error).to_error(&format!("change view {collection} in"), &base.place))
}
