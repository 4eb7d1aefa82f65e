//! Reading documents, and waiting for one's own writes.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::documents::{Collection, Parked, Record};
use crate::event::{Bookmark, DocumentId};
use crate::mark::Mark;
use crate::mutant;
use crate::store::Store;

/// A read of one document. Await it as it is, or let it wait for an event with
/// [`at_least`](Get::at_least).
#[must_use = "a read does nothing until it is awaited"]
#[derive(Debug)]
pub struct Get<S, D> {
    store: S,
    request: Result<(Collection, DocumentId), crate::Error>,
    bookmark: Option<Bookmark>,
    patience: Duration,
    document: std::marker::PhantomData<fn() -> D>,
}

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The event is in the log, but the projection has not folded it yet.
    #[error(
        "{collection} has not folded position {} of partition {} yet: it is at {at}, {behind} events \
         behind; read again, or check its status if this persists", bookmark.position, bookmark.partition
    )]
    Lagging {
        /// The collection.
        collection: Collection,
        /// The bookmark to wait for.
        bookmark: Bookmark,
        /// The mark of the projection.
        at: Mark,
        /// The number of events it is behind the end of the log.
        behind: u64,
    },
    /// The document, or the event's stream, is parked: an event could not be folded.
    #[error(
        "{id} in {collection} is parked since revision {} of stream {}: {}; fix the cause, then retry it",
        parked.revision, parked.stream, parked.error
    )]
    Parked {
        /// The collection.
        collection: Collection,
        /// The document.
        id: DocumentId,
        /// The error, its time, and the number of waiting events.
        parked: Box<Parked>,
    },
    /// The log has no such event.
    #[error(
        "bookmark {bookmark} names no event of this log; use a bookmark that an append to this log returned"
    )]
    Unknown {
        /// The bookmark to wait for.
        bookmark: Bookmark,
    },
    /// The store failed, or the document does not deserialize to this type.
    #[error(transparent)]
    Store(#[from] crate::Error),
}

impl<S: Store, D: DeserializeOwned> Get<S, D> {
    pub(crate) fn new(store: S, collection: &str, id: &str) -> Self {
        let request =
            Collection::new(collection).and_then(|collection| Ok((collection, DocumentId::new(id)?)));
        Self {
            store,
            request: request.map_err(Into::into),
            bookmark: None,
            patience: Duration::from_secs(5),
            document: std::marker::PhantomData,
        }
    }

    /// Waits until the event of this bookmark is folded. It fails with the reason after five
    /// seconds, or the time set with [`within`](Self::within), and at once if waiting can't help.
    pub fn at_least(self, bookmark: Bookmark) -> Self {
        Self { bookmark: Some(bookmark), ..self }
    }

    /// Sets the maximum time to wait.
    pub fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    async fn read(self) -> Result<Option<D>, ReadError> {
        let (collection, id) = self.request?;
        let record = match &self.bookmark {
            None => load(&self.store, &collection, &id).await?,
            Some(bookmark) => folded(&self.store, &collection, &id, bookmark, self.patience).await?,
        };
        let Some(body) = record.and_then(|record| record.body) else { return Ok(None) };
        let unreadable = |error| {
            let why = match body.damage() {
                Some(fault) => format!("the stored document is damaged: {fault}; refold it"),
                None => format!("the document does not have the requested type: {error}"),
            };
            crate::Error::new(crate::Kind::Format, format!("reading {id} from {collection}: {why}"))
        };
        Ok(Some(body.to().map_err(unreadable)?))
    }
}

impl<S: Store, D: DeserializeOwned + Send + 'static> IntoFuture for Get<S, D> {
    type Output = Result<Option<D>, ReadError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

async fn load<S: Store>(
    store: &S,
    collection: &Collection,
    id: &DocumentId,
) -> Result<Option<Record>, crate::Error> {
    Ok(store.load_current(collection, vec![id.clone()]).await?.pop())
}

/// The time a running projection takes if it is not far behind.
const SOON: Duration = Duration::from_millis(50);

/// Returns the record once the bookmark's event is folded.
async fn folded<S: Store>(
    store: &S,
    collection: &Collection,
    id: &DocumentId,
    bookmark: &Bookmark,
    patience: Duration,
) -> Result<Option<Record>, ReadError> {
    if !exists(store, bookmark).await? {
        return Err(ReadError::Unknown { bookmark: bookmark.clone() });
    }
    let waiting = async {
        // A running projection passes the event soon. Look for parked records only if it does not.
        let passed = if let Ok(passed) = timeout(SOON, passes(store, collection, bookmark)).await {
            passed?
        } else {
            look(store, &live(store, collection).await?, id, bookmark).await?;
            passes(store, collection, bookmark).await?
        };
        look(store, &passed, id, bookmark).await
    };
    if let Ok(answer) = timeout(patience, waiting).await {
        return answer;
    }
    let at = store.checkpoint(collection).await?.mark;
    let behind = at.distance(&store.heads().await?);
    Err(ReadError::Lagging { collection: collection.clone(), bookmark: bookmark.clone(), at, behind })
}

/// Returns the live generation.
async fn live<S: Store>(store: &S, collection: &Collection) -> Result<Collection, crate::Error> {
    Ok(collection.generation(store.generations(collection).await?.live.number))
}

/// Waits until the projection has folded or set aside the bookmark's event, and returns the
/// generation that has. Another generation may become live at any time, and may not have folded or
/// set aside the same events.
async fn passes<S: Store>(
    store: &S,
    collection: &Collection,
    bookmark: &Bookmark,
) -> Result<Collection, crate::Error> {
    loop {
        let live = live(store, collection).await?;
        mutant!(ReadAtOnce => return Ok(live));
        let at = store.checkpoint(&live).await?.mark;
        if at.position(bookmark.partition) >= bookmark.position {
            return Ok(live);
        }
        store.advanced(collection, &at).await?;
    }
}

/// Returns the record, unless a parked record keeps the bookmark's event from being folded into it.
async fn look<S: Store>(
    store: &S,
    collection: &Collection,
    id: &DocumentId,
    bookmark: &Bookmark,
) -> Result<Option<Record>, ReadError> {
    // Read in this order. An event before the checkpoint is folded unless its stream is parked, and
    // a stream is unparked only when all its documents have its events.
    let stream = load(store, &collection.streams(), &DocumentId::from(&bookmark.stream)).await?;
    let record = load(store, collection, id).await?;
    if let Some(parked) = hindrance(bookmark, stream.as_ref(), record.as_ref()) {
        let (collection, id, parked) = (collection.clone(), id.clone(), Box::new(parked.clone()));
        return Err(ReadError::Parked { collection, id, parked });
    }
    Ok(record)
}

/// Returns whether the log has the bookmark's event at the bookmark's place.
async fn exists<S: Store>(store: &S, bookmark: &Bookmark) -> Result<bool, crate::Error> {
    let Some(before) = bookmark.revision.0.checked_sub(1) else { return Ok(false) };
    let limit = crate::log::Limit { events: 1, bytes: 0 };
    let found = store.read_stream(&bookmark.stream, crate::Revision(before), limit).await?;
    Ok(found.first().is_some_and(|event| event.bookmark() == *bookmark))
}

/// Returns the parked record that keeps the bookmark's event from being folded into a document, if
/// any.
fn hindrance<'a>(
    bookmark: &Bookmark,
    stream: Option<&'a Record>,
    document: Option<&'a Record>,
) -> Option<&'a Parked> {
    let parked = |record: Option<&'a Record>| record.and_then(|record| record.header.parked.as_deref());
    // Any event after the failing one is missing from the document.
    let document =
        parked(document).filter(|parked| bookmark.position > parked.from.position(bookmark.partition));
    document.or_else(|| parked(stream).filter(|parked| bookmark.position >= parked.position))
}

impl fmt::Display for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {} of {} ({}): {}", self.revision, self.stream, self.kind, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Header;
    use crate::event::{Partition, Position, Revision, StreamId};
    use crate::mark::Lane;

    /// Creates a parked document that holds the events up to `from`.
    fn parked(from: Mark) -> Record {
        let header =
            Header { mark: Mark::default(), parked: Some(Parked { from, ..Parked::example() }.into()) };
        Record { id: DocumentId::new("x").unwrap(), header, body: None }
    }

    fn bookmark(partition: u16, position: u64) -> Bookmark {
        let (partition, position) = (Partition(partition), Position(position));
        Bookmark { stream: StreamId::new("s").unwrap(), revision: Revision(1), partition, position }
    }

    #[test]
    fn a_parked_document_hinders_what_it_is_not_known_to_hold() {
        let known = parked([(Lane::from(Partition(0)), 6)].into_iter().collect());
        assert_eq!(hindrance(&bookmark(0, 6), None, Some(&known)), None);
        assert!(hindrance(&bookmark(0, 7), None, Some(&known)).is_some());
        assert!(
            hindrance(&bookmark(1, 1), None, Some(&known)).is_some(),
            "nothing is known of that partition"
        );
        let unknown = parked(Mark::default());
        for bookmark in [bookmark(0, 1), bookmark(1, 1)] {
            assert!(hindrance(&bookmark, None, Some(&unknown)).is_some(), "{bookmark}");
        }
    }
}
