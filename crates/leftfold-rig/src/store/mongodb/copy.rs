//! An in-memory copy of a database as of one instant. It is read as any program could read it,
//! without the store's own code.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use leftfold::documents::{
    Advance, Checkpoint, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record,
};
use leftfold::log::Entry;
use leftfold::{
    Append as _, Collection, DocumentId, Documents as _, Error, EventId, EventKind, Expected, Json, Kind,
    Mark, Memory, Result, StreamId,
};
use leftfold_sim::notes::{BY_CONTENT, BY_STREAM};
use mongodb::Database;
use mongodb::bson::{Bson, Document};

use super::{number, read, text};
use crate::store::Snapshot;

pub(super) const CHECKPOINTS: &str = "leftfold.checkpoints";
const EVENTS: &str = "leftfold.events";

/// The data of a database as of one instant.
pub(crate) struct Copy {
    store: Memory,
    instant: u64,
    /// The documents as they were read, by collection.
    stored: Vec<(String, Vec<Document>)>,
    directory: PathBuf,
}

impl Copy {
    /// Reads everything as of one instant.
    pub(super) async fn of(database: &Database, directory: &Path) -> Result<Self> {
        let (at, events) = read(database, EVENTS, None).await?;
        let store = Memory::default();
        append(&store, &events).await?;
        let mut stored = vec![(EVENTS.to_owned(), events)];
        let checkpoints = read(database, CHECKPOINTS, Some(at)).await?.1;
        for (collection, name) in records()? {
            let documents = read(database, &name, Some(at)).await?.1;
            let checkpoint = of(&checkpoints, &collection);
            write(&store, collection, &documents, checkpoint).await?;
            stored.push((name, documents));
        }
        stored.push((CHECKPOINTS.to_owned(), checkpoints));
        Ok(Self { store, instant: number(at), stored, directory: directory.to_owned() })
    }
}

impl Snapshot for Copy {
    type Store = Memory;

    fn store(&self) -> &Memory {
        &self.store
    }

    fn instant(&self) -> u64 {
        self.instant
    }

    async fn end(self, keep: bool) -> Result<()> {
        if !keep {
            return Ok(());
        }
        let path = self.directory.join(format!("at-{}.json", self.instant));
        let failed = |error: std::io::Error| {
            Error::new(Kind::Store, format!("writing {}", path.display())).with_source(error)
        };
        let all: Document =
            self.stored.into_iter().map(|(name, documents)| (name, documents.into())).collect();
        let file = File::create(&path).map_err(failed)?;
        serde_json::to_writer_pretty(file, &Bson::Document(all).into_relaxed_extjson())
            .map_err(|error| failed(error.into()))
    }
}

/// Returns all collections that matter.
pub(super) fn collections() -> Result<Vec<String>> {
    let records = records()?.into_iter().map(|(_, name)| name);
    Ok(records.chain([EVENTS, CHECKPOINTS].map(str::to_owned)).collect())
}

/// Returns the collections with the projections' records and their parked streams.
fn records() -> Result<Vec<(Collection, String)>> {
    let mut records = Vec::new();
    for name in [BY_STREAM, BY_CONTENT] {
        let collection = Collection::new(name)?;
        records.push((collection.streams(), format!("leftfold.streams.{name}")));
        records.push((collection, format!("leftfold.docs.{name}")));
    }
    Ok(records)
}

/// Appends events to the copy. The log has one partition, and an event's `_id` is its position.
async fn append(store: &Memory, events: &[Document]) -> Result<()> {
    for event in events {
        let wrong = |why: &dyn std::fmt::Display| Error::new(Kind::Format, format!("event {event}: {why}"));
        let stream = StreamId::stored(text(event, "stream")?);
        let time = event.get_datetime("time").map_err(|error| wrong(&error))?;
        let entry = Entry {
            id: EventId::stored(text(event, "id")?),
            kind: EventKind::stored(text(event, "type")?),
            time: Timestamp::from_millisecond(time.timestamp_millis()).map_err(|error| wrong(&error))?,
            data: Json::stored(text(event, "data")?),
            metadata: None,
        };
        let appended =
            store.append(stream, Expected::Any, vec![entry]).await.map_err(|error| wrong(&error))?;
        let bookmark = appended.into_bookmark();
        let number = |field| event.get_i64(field).ok().and_then(|number| u64::try_from(number).ok());
        if (number("_id"), number("revision")) != (Some(bookmark.position.0), Some(bookmark.revision.0)) {
            return Err(wrong(&format!(
                "it should be {bookmark}; there is a gap before it, or it is a duplicate"
            )));
        }
    }
    Ok(())
}

async fn write(
    store: &Memory,
    collection: Collection,
    documents: &[Document],
    checkpoint: Option<&Document>,
) -> Result<()> {
    store.prepare(&collection).await?;
    let writes =
        documents.iter().map(|document| Ok(DocumentWrite { expected: None, record: record(document)? }));
    let writes = writes.collect::<Result<_>>()?;
    let advance = match checkpoint {
        Some(checkpoint) => {
            let to = Checkpoint { mark: mark(checkpoint)?, ..Checkpoint::default() };
            Some(Advance { projection: collection.clone(), from: Mark::default(), to })
        }
        None => None,
    };
    let commit = Commit { advance, changes: vec![CollectionWrites { collection, writes }] };
    match store.commit(Arc::new(commit)).await? {
        CommitOutcome::Applied => Ok(()),
        outcome => Err(Error::new(Kind::Format, format!("copying the store: {outcome:?}"))),
    }
}

/// Returns the checkpoint of a projection.
pub(super) fn of<'a>(checkpoints: &'a [Document], projection: &Collection) -> Option<&'a Document> {
    checkpoints.iter().find(|checkpoint| checkpoint.get_str("_id").is_ok_and(|id| id == projection.as_str()))
}

/// Returns the mark of a document or of a projection.
pub(super) fn mark(stored: &Document) -> Result<Mark> {
    parse(text(stored, "mark")?)
}

fn record(document: &Document) -> Result<Record> {
    let wrong = |error| Error::new(Kind::Format, format!("{document}: {error}"));
    let fold = document.get_document("_fold").map_err(wrong)?;
    let parked = fold.get_str("parked").ok().map(parse).transpose()?;
    let body = if fold.contains_key("gone") { None } else { Some(body(document, fold)?) };
    let id = DocumentId::stored(text(document, "_id")?);
    Ok(Record { id, header: Header { mark: mark(fold)?, parked }, body })
}

fn body(document: &Document, fold: &Document) -> Result<Json> {
    if let Ok(text) = fold.get_str("json") {
        return Ok(Json::stored(text));
    }
    let fields = document.iter().filter(|(name, _)| !matches!(name.as_str(), "_id" | "_fold"));
    let fields: Document = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(Json::of(&Bson::Document(fields).into_relaxed_extjson())?)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::new(Kind::Format, format!("{text}: {error}")))
}
