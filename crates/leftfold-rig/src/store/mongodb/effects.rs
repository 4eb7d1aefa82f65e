//! Items and effects as collections.

use std::collections::BTreeMap;

use leftfold::react::{Context, HandlerError};
use leftfold::{Error, Event, Kind, Result};
use leftfold_mongodb::{InTransaction as _, Mongo};
use leftfold_sim::notes::FoldedEvents;
use mongodb::bson::raw::cstr;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::{ReadConcern, WriteConcern};
use mongodb::{ClientSession, Collection};
use serde::de::DeserializeOwned;

use super::{away, text};
use crate::points;
use crate::react::{Effect, ITEMS, Item, summary};
use crate::store::Place;
use crate::store::effects::{EFFECTS, Effects};

impl Effects for Mongo {
    // In JSON this is larger than the maximum size of a document.
    const LARGE_BYTES: usize = 13_000_000;

    async fn create_tables(&self) -> Result<()> {
        for name in [ITEMS, EFFECTS] {
            self.database().create_collection(name).await.map_err(away)?;
        }
        Ok(())
    }

    async fn put_item(&self, id: &str, item: Option<&Item>) -> Result<()> {
        let (items, id) = (self.database().collection::<Document>(ITEMS), doc! { "_id": id });
        match item {
            Some(item) => {
                let item = mongodb::bson::serialize_to_document(item)
                    .map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
                items.replace_one(id, item).upsert(true).await.map_err(away)?;
            }
            None => {
                items.delete_one(id).await.map_err(away)?;
            }
        }
        Ok(())
    }

    async fn insert_items(&self, items: &[(String, Item)]) -> Result<()> {
        let mut documents = Vec::new();
        for (id, item) in items {
            let mut document = mongodb::bson::serialize_to_document(item)
                .map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
            document.insert("_id", id);
            documents.push(document);
        }
        let ids: Vec<_> = items.iter().map(|(id, _)| id).collect();
        let collection = self.database().collection::<Document>(ITEMS);
        // The response to an earlier attempt may have been lost.
        collection.delete_many(doc! { "_id": { "$in": ids } }).await.map_err(away)?;
        collection.insert_many(documents).await.map_err(away)?;
        Ok(())
    }

    async fn put_unreadable(&self, id: &str) -> Result<()> {
        let item = unreadable(id)?;
        let items = self.database().collection::<RawDocumentBuf>(ITEMS);
        items.replace_one(doc! { "_id": id }, item).upsert(true).await.map_err(away)?;
        Ok(())
    }

    async fn items(&self) -> Result<BTreeMap<String, Item>> {
        let found = all(&self.database().collection(ITEMS)).await?;
        found.into_iter().map(|item| Ok((text(&item, "_id")?.to_owned(), decode(item)?))).collect()
    }

    async fn effects(&self) -> Result<Vec<Effect>> {
        let found = all(&self.database().collection(EFFECTS)).await?;
        found.into_iter().map(decode).collect()
    }

    async fn record(ctx: Context<FoldedEvents>) -> Result<(), HandlerError> {
        let mut session = begin(&ctx).await?;
        let seen = ctx.document_in(&mut session).await?;
        complete(&ctx, session, Effect::of(&ctx, &summary(&seen))?).await
    }

    async fn pass(ctx: Context<Event>) -> Result<(), HandlerError> {
        let session = begin(&ctx).await?;
        let effect = Effect::of(&ctx, &ctx.event()?.revision.0)?;
        complete(&ctx, session, effect).await
    }

    async fn leaders(&self) -> Result<Vec<(String, String)>> {
        let lasting = doc! { "owner": { "$exists": true }, "$expr": { "$gt": ["$until", "$$NOW"] } };
        let feeds = self.database().collection::<Document>("leftfold.feeds");
        let mut found = feeds.find(lasting).await.map_err(away)?;
        let mut leaders = Vec::new();
        while found.advance().await.map_err(away)? {
            let lease = found.deserialize_current().map_err(away)?;
            leaders.push((text(&lease, "_id")?.to_owned(), text(&lease, "owner")?.to_owned()));
        }
        Ok(leaders)
    }

    async fn provoke(&self, _: &Place) -> Result<()> {
        Ok(())
    }
}

async fn begin<D>(ctx: &Context<D>) -> Result<ClientSession, HandlerError> {
    points::reached(points::BEGIN);
    let store = ctx.store::<Mongo>().ok_or("the run has another store")?;
    let mut session = store.database().client().start_session().await?;
    let begin = session.start_transaction().read_concern(ReadConcern::snapshot());
    begin.write_concern(WriteConcern::majority()).await?;
    Ok(session)
}

/// Records an effect and completes the task in the same transaction.
async fn complete<D: 'static>(
    ctx: &Context<D>,
    mut session: ClientSession,
    mut effect: Effect,
) -> Result<(), HandlerError> {
    let store = ctx.store::<Mongo>().ok_or("the run has another store")?;
    let effects = store.database().collection::<Document>(EFFECTS);
    let same = doc! { "reaction": &effect.reaction, "document": &effect.document };
    effect.before = Some(effects.count_documents(same).session(&mut session).await?);
    effects.insert_one(mongodb::bson::serialize_to_document(&effect)?).session(&mut session).await?;
    ctx.complete_in(&mut session).await?;
    points::reached(points::COMPLETED);
    session.commit_transaction().await?;
    points::reached(points::COMMITTED);
    Ok(())
}

/// Returns a document with a text that is not UTF-8. Servers accept it.
fn unreadable(id: &str) -> Result<RawDocumentBuf> {
    const MARKER: &[u8] = b"????";
    let invalid = |error: String| Error::new(Kind::Invalid, error);
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), id);
    document.append(cstr!("on"), true);
    document.append(cstr!("text"), "????");
    let mut bytes = document.into_bytes();
    let at = bytes.windows(MARKER.len()).position(|window| window == MARKER);
    let at = at.ok_or_else(|| invalid("the text is not in the document".to_owned()))?;
    bytes[at] = 0xff;
    RawDocumentBuf::from_bytes(bytes).map_err(|error| invalid(error.to_string()))
}

async fn all(collection: &Collection<Document>) -> Result<Vec<Document>> {
    let mut found = collection.find(doc! {}).await.map_err(away)?;
    let mut all = Vec::new();
    while found.advance().await.map_err(away)? {
        all.push(found.deserialize_current().map_err(away)?);
    }
    Ok(all)
}

fn decode<T: DeserializeOwned>(document: Document) -> Result<T> {
    let text = Bson::Document(document).into_relaxed_extjson();
    serde_json::from_value(text.clone()).map_err(|error| Error::new(Kind::Format, format!("{text}: {error}")))
}
