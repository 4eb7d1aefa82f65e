//! Documents of one type, each guarded by its content.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use foldhash::fast::RandomState;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::content::store::{ContentGuard, ContentWrite, Contents, Operated, Stored, Wrote};
use crate::content::{Counted, Operation, Version};
use crate::documents::MAX_BODY_BYTES;
use crate::env::{Env, System};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::mutant;
use crate::react::ExternalCollection;

/// The maximum number of attempts of a write while operations change its guard but not the content
/// it is based on.
const TRIES: usize = 50;

/// Documents of one type that are written without events, each guarded by its content.
///
/// A write names the version that it is based on, and the new content. Repeated, it finds its own
/// content and does nothing. So a caller that did not get an answer can write again; `Versioned`
/// does that automatically if the store is unavailable.
///
/// ```
/// use leftfold::content::{WriteAnswer, Versioned};
/// use leftfold::Memory;
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct Product { name: String, price: u64 }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let products = Versioned::<Product, _>::new(Memory::default(), "products").await?;
/// let shoes = Product { name: "shoes".into(), price: 4900 };
/// let WriteAnswer::Applied(first) = products.insert("shoes", &shoes).await? else { panic!() };
/// assert_eq!(products.insert("shoes", &shoes).await?, WriteAnswer::AlreadyApplied(first));
///
/// let cheaper = Product { price: 3900, ..shoes.clone() };
/// let WriteAnswer::Applied(second) = products.update("shoes", first, &cheaper).await? else { panic!() };
/// assert_eq!(products.update("shoes", first, &cheaper).await?, WriteAnswer::AlreadyApplied(second));
/// let dearer = Product { price: 5900, ..shoes };
/// let WriteAnswer::Conflict(Some(current)) = products.update("shoes", first, &dearer).await? else { panic!() };
/// assert_eq!((current.version, current.document), (second, cheaper));
/// # Ok(()) }
/// ```
///
/// # Limits
///
/// Content that returns has its old version again. A write from A to B does not notice that the
/// document was A, then C, then A again in the meantime. If that matters, add a counter to the
/// document.
///
/// All writers must write in this way: other programs may read the collection, but not write to it.
pub struct Versioned<D, S> {
    store: S,
    env: Arc<dyn Env>,
    collection: ExternalCollection,
    counted: Counted,
    retry: Backoff,
    document: PhantomData<fn() -> D>,
}

impl<D, S: Clone> Clone for Versioned<D, S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            env: self.env.clone(),
            collection: self.collection.clone(),
            counted: self.counted.clone(),
            retry: self.retry,
            document: PhantomData,
        }
    }
}

/// The maximum number of documents of a large write that are in flight at the same time.
const AT_ONCE: usize = 1_000;

/// A document, and the version of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current<D> {
    /// The version that a change must be based on.
    pub version: Version,
    /// The document.
    pub document: D,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteAnswer<D> {
    /// The document is written and has this version. After a deletion, this is the version of the
    /// deleted content.
    Applied(Version),
    /// The document already had this content. Another caller, or this one before an answer was
    /// lost, wrote it.
    AlreadyApplied(Version),
    /// The document has other content or does not exist. Nothing was written. But if the store was
    /// unavailable meanwhile, the write may have happened, and others may have changed the document
    /// since.
    Conflict(Option<Current<D>>),
    /// One of [many](Versioned::write_all) documents is invalid: its id or its content can't be
    /// stored. Nothing was written. A single write fails with an error instead.
    Impossible(Invalid),
}

impl<D, S: fmt::Debug> fmt::Debug for Versioned<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, collection, counted, retry, .. } = self;
        f.debug_struct("Versioned")
            .field("store", store)
            .field("collection", collection)
            .field("counted", counted)
            .field("retry", retry)
            .finish_non_exhaustive()
    }
}

/// A requested write.
struct Wanted {
    write: ContentWrite,
    made: Made,
}

/// The versions before and after a write.
#[derive(Clone, Copy)]
struct Made {
    /// The version that the write is based on.
    from: Option<Version>,
    /// The version after the write; for a deletion, that of the deleted content.
    to: Version,
}

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// The maximum number of batches in flight at the same time.
    const AT_ONCE: usize = AT_ONCE.div_ceil(S::PIECE);

    /// Opens this collection or table, and creates it if it does not exist.
    pub async fn new(store: S, collection: impl Into<String>) -> Result<Self> {
        let collection = ExternalCollection::new(collection)?;
        store.prepare_contents(&collection).await?;
        let retry = Backoff::default().limit(10);
        let (env, counted) = (Arc::new(System), Counted::All);
        Ok(Self { store, env, collection, counted, retry, document: PhantomData })
    }

    /// Sets the part of a document that counts for versions; the default is all. The rest is
    /// written nevertheless.
    #[must_use]
    pub fn counting(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// Sets the retry policy, for an unavailable store and for conflicts of
    /// [`change`](Self::change).
    #[must_use]
    pub fn retry(self, retry: Backoff) -> Self {
        Self { retry, ..self }
    }

    /// Sets the source of randomness, for simulations.
    #[must_use]
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Returns a document, if it exists.
    pub async fn get(&self, id: &str) -> Result<Option<Current<D>>> {
        let id = DocumentId::new(id)?;
        let ask = || self.store.contents(&self.collection, vec![id.clone()]);
        let stored = self.patiently(ask).await?.0.pop();
        stored.map(|stored| self.current(&stored)).transpose()
    }

    /// Inserts a document. If one with the same content exists, it counts as already applied.
    pub async fn insert(&self, id: &str, document: &D) -> Result<WriteAnswer<D>> {
        self.one(self.wanted(id, None, document)?).await
    }

    /// Updates a document that has this version.
    pub async fn update(&self, id: &str, from: Version, to: &D) -> Result<WriteAnswer<D>> {
        self.one(self.wanted(id, Some(from), to)?).await
    }

    /// Deletes a document that has this version.
    pub async fn delete(&self, id: &str, from: Version) -> Result<WriteAnswer<D>> {
        self.one(Self::deletion(id, from)?).await
    }

    /// Inserts or updates many documents, each at most once, in few store calls, while it prepares
    /// the next ones. Each write is independent, and an invalid one does not affect the others.
    /// Returns the answers in order. On an error some may be written; writing all of them again is
    /// harmless.
    pub async fn write_all<'d>(
        &self,
        writes: impl IntoIterator<Item = (&'d str, Option<Version>, &'d D)>,
    ) -> Result<Vec<WriteAnswer<D>>>
    where
        D: 'd,
    {
        self.pieces(writes).end().await
    }

    /// Prepares many writes, and begins them.
    fn pieces<'d>(
        &self,
        writes: impl IntoIterator<Item = (&'d str, Option<Version>, &'d D)>,
    ) -> Pieces<WriteAnswer<D>>
    where
        D: 'd,
    {
        let mut pieces = Pieces::new(Self::AT_ONCE);
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let (mut wanted, mut refused) = (Vec::with_capacity(S::PIECE), Vec::new());
            for (at, (id, from, to)) in writes.by_ref().take(S::PIECE).enumerate() {
                match self.wanted(id, from, to) {
                    Ok(wanting) => wanted.push(wanting),
                    Err(invalid) => refused.push((at, invalid)),
                }
            }
            pieces.begin(Box::pin(self.clone().piece(wanted, refused)));
        }
        pieces
    }

    /// Writes one batch. Inserts the answers of invalid documents at their places.
    async fn piece(self, wanted: Vec<Wanted>, refused: Vec<(usize, Invalid)>) -> Result<Vec<WriteAnswer<D>>> {
        let (mut answers, _) = self.all(wanted).await?;
        for (at, invalid) in refused {
            answers.insert(at, WriteAnswer::Impossible(invalid));
        }
        Ok(answers)
    }

    /// Reads a document, changes it with a function, and writes it; retries if others change it
    /// first. The function receives the current document and returns the new one; `None` means no
    /// document. Returns the document after the change.
    ///
    /// If the store becomes unavailable right after a write, and others write meanwhile, the
    /// outcome of that write is unknown. Then the function is called once more. To apply a change
    /// exactly once even then, [operate](Self::operate).
    pub async fn change(
        &self,
        id: &str,
        mut change: impl FnMut(Option<D>) -> Result<Option<D>>,
    ) -> Result<Option<Current<D>>> {
        let mut delays = self.retry.delays(self.env.random());
        let mut was_in_doubt = false;
        loop {
            // The document from before a wait may be outdated.
            let current = self.get(id).await.map_err(|error| doubted(error, was_in_doubt))?;
            let from = current.as_ref().map(|current| current.version);
            let to = change(current.map(|current| current.document))?;
            let wanted = match (from, &to) {
                (None, None) => return Ok(None),
                (Some(from), None) => Self::deletion(id, from)?,
                (from, Some(to)) => self.wanted(id, from, to)?,
            };
            let is_change = from != Some(wanted.made.to) || to.is_none();
            let all = self.all(vec![wanted]).await;
            let (mut answers, is_in_doubt) = all.map_err(|error| doubted(error, was_in_doubt))?;
            was_in_doubt |= is_in_doubt;
            match answers.pop() {
                Some(WriteAnswer::Applied(version)) => {
                    return Ok(to.map(|document| Current { version, document }));
                }
                // Either this write was ours, or it changes nothing. Otherwise another caller made
                // the same change, and ours is still missing.
                Some(WriteAnswer::AlreadyApplied(version)) if is_in_doubt || !is_change => {
                    mutant!(ChangeAgain => if is_change { continue });
                    return Ok(to.map(|document| Current { version, document }));
                }
                Some(
                    WriteAnswer::AlreadyApplied(_) | WriteAnswer::Conflict(_) | WriteAnswer::Impossible(_),
                )
                | None => {}
            }
            let Some(delay) = delays.next() else {
                let message = format!("changing {id} in {}: others keep changing it; try again", self.name());
                return Err(doubted(Error::new(Kind::Conflict, message), was_in_doubt));
            };
            sleep(delay).await;
        }
    }

    /// Applies an operation. An operation that was applied before is not applied again.
    ///
    /// Fails if the document does not exist or does not allow it. Also fails if the id is so old
    /// that the outcome is unknown.
    pub async fn operate(&self, id: &str, operation: Operation) -> Result<Operated> {
        let (id, number) = (DocumentId::new(id)?, operation.id());
        let operated = self.operate_all(vec![(id.clone(), operation)]).await?.pop();
        let operated = operated.unwrap_or(Operated::Missing);
        let doing = format!("applying operation {number} to {id} in {}", self.name());
        let fail = |why: String| Err(Error::new(Kind::Invalid, format!("{doing}: {why}")));
        match operated {
            Operated::Applied | Operated::AlreadyApplied => Ok(operated),
            Operated::Missing => fail("there is no such document; insert it first".to_owned()),
            Operated::Impossible(invalid) => fail(invalid.to_string()),
            Operated::TooOld => fail(
                "it is older than all that the document remembers, so nobody can tell whether it was applied; \
                 look at the document, and give it a new id if it was not"
                    .to_owned(),
            ),
        }
    }

    /// Applies many operations in as few store calls as possible, each independently. Returns the
    /// results in order.
    pub async fn operate_all(&self, operations: Vec<(DocumentId, Operation)>) -> Result<Vec<Operated>> {
        let documents: HashSet<_, RandomState> = operations.iter().map(|(id, _)| id).collect();
        // Operations on the same document stay in order.
        let most = if documents.len() == operations.len() { S::PIECE } else { operations.len() };
        drop(documents);
        let mut operations = operations.into_iter();
        let mut pieces = Pieces::new(Self::AT_ONCE);
        while operations.len() > 0 {
            let piece = operations.by_ref().take(most).collect();
            pieces.begin(Box::pin(self.clone().operate_piece(piece)));
        }
        pieces.end().await
    }

    async fn operate_piece(self, operations: Arc<[(DocumentId, Operation)]>) -> Result<Vec<Operated>> {
        Ok(self.patiently(|| self.store.operate(&self.collection, Arc::clone(&operations))).await?.0)
    }

    fn name(&self) -> &str {
        self.collection.as_str()
    }

    fn current(&self, stored: &Stored) -> Result<Current<D>> {
        let version = Version::of(&stored.body, &self.counted)?;
        Ok(Current { version, document: stored.body.to()? })
    }

    fn wanted(&self, id: &str, from: Option<Version>, to: &D) -> Result<Wanted, Invalid> {
        let (id, body) = (DocumentId::new(id)?, Json::of(to)?);
        check(&body)?;
        let to = Version::of(&body, &self.counted)?;
        let write = ContentWrite {
            id,
            expected: from.map(ContentGuard::from),
            to: Some((ContentGuard::from(to), body)),
        };
        Ok(Wanted { write, made: Made { from, to } })
    }

    fn deletion(id: &str, from: Version) -> Result<Wanted> {
        let write = ContentWrite { id: DocumentId::new(id)?, expected: Some(from.into()), to: None };
        Ok(Wanted { write, made: Made { from: Some(from), to: from } })
    }

    async fn one(&self, wanted: Wanted) -> Result<WriteAnswer<D>> {
        let answer = self.all(vec![wanted]).await?.0.pop();
        answer.ok_or_else(|| Error::new(Kind::Store, "writing a document: the store did not answer"))
    }

    /// Writes, and writes again if only the guard differs from the expected one, as it does after
    /// operations. Also returns whether an earlier attempt may have been written.
    async fn all(&self, wanted: Vec<Wanted>) -> Result<(Vec<WriteAnswer<D>>, bool)> {
        let mut answers: Vec<Option<WriteAnswer<D>>> = wanted.iter().map(|_| None).collect();
        let mut made: Vec<(usize, Made)> = wanted.iter().map(|wanted| wanted.made).enumerate().collect();
        let mut writes: Arc<[ContentWrite]> = wanted.into_iter().map(|wanted| wanted.write).collect();
        let (mut tries, mut is_in_doubt, mut has_written) = (0..TRIES, false, false);
        while !writes.is_empty() {
            if tries.next().is_none() {
                let message =
                    format!("writing to {}: operations keep changing the same documents", self.name());
                return Err(doubted(Error::new(Kind::Unavailable, message), is_in_doubt || has_written));
            }
            let ask = || self.store.write_contents(&self.collection, Arc::clone(&writes));
            let asked = self.patiently(ask).await;
            let (wrote, was_in_doubt) = asked.map_err(|error| doubted(error, is_in_doubt || has_written))?;
            is_in_doubt |= was_in_doubt;
            has_written |= wrote.contains(&Wrote::Written);
            let (mut made_again, mut again) = (Vec::new(), Vec::new());
            for (((at, made), write), wrote) in made.into_iter().zip(writes.iter()).zip(wrote) {
                match self.judge(write, made, wrote)? {
                    Judged::Answer(answer) => answers[at] = Some(answer),
                    Judged::Expects(guard) => {
                        again.push(ContentWrite { expected: Some(guard), ..write.clone() });
                        made_again.push((at, made));
                    }
                }
            }
            (made, writes) = (made_again, again.into());
        }
        Ok((answers.into_iter().flatten().collect(), is_in_doubt))
    }

    /// Decides about one write from the store's answer.
    fn judge(&self, write: &ContentWrite, made: Made, outcome: Wrote) -> Result<Judged<D>> {
        let is_deletion = write.to.is_none();
        let already_applied = || Ok(Judged::Answer(WriteAnswer::AlreadyApplied(made.to)));
        let stored = match outcome {
            Wrote::Written => return Ok(Judged::Answer(WriteAnswer::Applied(made.to))),
            Wrote::Refused(None) if is_deletion => return already_applied(),
            Wrote::Refused(None) => return Ok(Judged::Answer(WriteAnswer::Conflict(None))),
            Wrote::Refused(Some(stored)) => stored,
        };
        let version = Version::of(&stored.body, &self.counted)?;
        mutant!(OtherIsSame => if !is_deletion { return already_applied() });
        if !is_deletion && version == made.to {
            mutant!(SameIsConflict => return Self::conflict(version, &stored));
            return already_applied();
        }
        mutant!(WriteOverOthers => return Ok(Judged::Expects(stored.guard)));
        // The content is the one that the write is based on, but the guard differs. Either
        // operations led there, or another writer counts other parts.
        if Some(version) == made.from && write.expected.as_ref() != Some(&stored.guard) {
            return Ok(Judged::Expects(stored.guard));
        }
        Self::conflict(version, &stored)
    }

    fn conflict(version: Version, stored: &Stored) -> Result<Judged<D>> {
        Ok(Judged::Answer(WriteAnswer::Conflict(Some(Current { version, document: stored.body.to()? }))))
    }

    /// Sends a request to the store, and repeats it while the store is unavailable: all requests
    /// may be repeated. Also returns whether an earlier attempt may have arrived.
    async fn patiently<T, F: Future<Output = Result<T>>>(
        &self,
        mut ask: impl FnMut() -> F,
    ) -> Result<(T, bool)> {
        let mut delays = self.retry.delays(self.env.random());
        let mut is_in_doubt = false;
        loop {
            match ask().await {
                Err(error) if error.is_transient() => {
                    is_in_doubt |= error.is_unknown();
                    sleep(delays.next().ok_or_else(|| doubted(error, is_in_doubt))?).await;
                }
                Err(error) => return Err(error),
                Ok(answer) => return Ok((answer, is_in_doubt)),
            }
        }
    }
}

type Piece<T> = Pin<Box<dyn Future<Output = Result<Vec<T>>> + Send>>;

/// Batches of work, some of them in flight at the same time, in the caller's task.
struct Pieces<T> {
    at_once: usize,
    waiting: VecDeque<(usize, Piece<T>)>,
    under_way: Vec<(usize, Piece<T>)>,
    count: usize,
    begun: usize,
    answers: Result<BTreeMap<usize, Vec<T>>>,
}

impl<T> Pieces<T> {
    fn new(at_once: usize) -> Self {
        let answers = Ok(BTreeMap::new());
        Self { at_once, waiting: VecDeque::new(), under_way: Vec::new(), count: 0, begun: 0, answers }
    }

    /// Adds a batch, and begins it unless too many are in flight.
    fn begin(&mut self, piece: Piece<T>) {
        self.waiting.push_back((self.count, piece));
        self.count += 1;
        // Poll now, so that the store works while the next batch is prepared. `end` registers the
        // real waker.
        let _ = self.poll(&mut Context::from_waker(Waker::noop()));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.answers.is_ok() && self.under_way.len() < self.at_once {
                let Some(next) = self.waiting.pop_front() else { break };
                self.under_way.push(next);
                self.begun += 1;
            }
            let before = self.under_way.len();
            let (answers, is_alone) = (&mut self.answers, self.begun == 1);
            self.under_way.retain_mut(|(at, piece)| {
                let Poll::Ready(done) = piece.as_mut().poll(context) else { return true };
                match (answers.as_mut(), done) {
                    (Ok(all), Ok(done)) => _ = all.insert(*at, done),
                    // Other batches may have been written.
                    (Ok(_), Err(error)) => *answers = Err(doubted(error, !is_alone)),
                    (Err(_), _) => {}
                }
                false
            });
            if self.under_way.is_empty() && (self.waiting.is_empty() || self.answers.is_err()) {
                return Poll::Ready(());
            }
            if self.under_way.len() == before {
                return Poll::Pending;
            }
        }
    }

    /// Waits for all batches. Returns the answers in order.
    async fn end(mut self) -> Result<Vec<T>> {
        poll_fn(|context| self.poll(context)).await;
        Ok(self.answers?.into_values().flatten().collect())
    }
}

/// Returns the error to report if a write may have happened before it.
fn doubted(error: Error, is_in_doubt: bool) -> Error {
    let says_nothing_written =
        matches!(error.kind(), Kind::Unavailable | Kind::Contended | Kind::Full | Kind::Conflict);
    if !(is_in_doubt && says_nothing_written) {
        return error;
    }
    mutant!(DoubtForgotten => return error);
    Error::new(Kind::Unknown, "nobody can tell whether it was written before that").with_source(error)
}

enum Judged<D> {
    Answer(WriteAnswer<D>),
    /// The document has the content that the write is based on, and this guard.
    Expects(ContentGuard),
}

/// Rejects documents that some store can't hold.
fn check(body: &Json) -> Result<(), Invalid> {
    let text = body.as_str();
    if !text.starts_with('{') {
        return Err(Invalid::new("document", text, "an object with fields"));
    }
    if text.len() > MAX_BODY_BYTES {
        return Err(Invalid::new(
            "document",
            text,
            format!("at most {MAX_BODY_BYTES} bytes, not {}", text.len()),
        ));
    }
    Ok(())
}
