//! Guarded writes: inserts, updates and deletes.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batches::Batches;
use super::judge::Judged;
use super::retry::doubted;
use super::{Current, Versioned};
use crate::content::Version;
use crate::content::store::{ContentGuard, ContentWrite, Contents, Wrote};
use crate::documents::MAX_BODY_BYTES;
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::DocumentId;
use crate::json::Json;

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

/// The maximum number of attempts of a write while operations change its guard but not the content
/// it is based on.
const MAX_TRIES: usize = 50;

/// A requested write.
pub(super) struct Wanted {
    write: ContentWrite,
    pub(super) made: Made,
}

/// The versions before and after a write.
#[derive(Clone, Copy)]
pub(super) struct Made {
    /// The version that the write is based on.
    pub(super) from: Option<Version>,
    /// The version after the write; for a deletion, that of the deleted content.
    pub(super) to: Version,
}

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Inserts a document. If one with the same content exists, it counts as already applied.
    pub async fn insert(&self, id: &str, document: &D) -> Result<WriteAnswer<D>> {
        self.write_one(self.wanted(id, None, document)?).await
    }

    /// Updates a document that has this version.
    pub async fn update(&self, id: &str, from: Version, to: &D) -> Result<WriteAnswer<D>> {
        self.write_one(self.wanted(id, Some(from), to)?).await
    }

    /// Deletes a document that has this version.
    pub async fn delete(&self, id: &str, from: Version) -> Result<WriteAnswer<D>> {
        self.write_one(Self::deletion(id, from)?).await
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
        self.begin_batches(writes).end().await
    }

    /// Prepares many writes, and begins them.
    fn begin_batches<'d>(
        &self,
        writes: impl IntoIterator<Item = (&'d str, Option<Version>, &'d D)>,
    ) -> Batches<WriteAnswer<D>>
    where
        D: 'd,
    {
        let mut batches = Batches::new(Self::AT_ONCE);
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let (mut wanted, mut refused) = (Vec::with_capacity(S::PIECE), Vec::new());
            for (at, (id, from, to)) in writes.by_ref().take(S::PIECE).enumerate() {
                match self.wanted(id, from, to) {
                    Ok(wanting) => wanted.push(wanting),
                    Err(invalid) => refused.push((at, invalid)),
                }
            }
            batches.begin(Box::pin(self.clone().write_batch(wanted, refused)));
        }
        batches
    }

    /// Writes one batch. Inserts the answers of invalid documents at their places.
    async fn write_batch(
        self,
        wanted: Vec<Wanted>,
        refused: Vec<(usize, Invalid)>,
    ) -> Result<Vec<WriteAnswer<D>>> {
        let (mut answers, _) = self.write(wanted).await?;
        for (at, invalid) in refused {
            answers.insert(at, WriteAnswer::Impossible(invalid));
        }
        Ok(answers)
    }

    pub(super) fn wanted(&self, id: &str, from: Option<Version>, to: &D) -> Result<Wanted, Invalid> {
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

    pub(super) fn deletion(id: &str, from: Version) -> Result<Wanted> {
        let write = ContentWrite { id: DocumentId::new(id)?, expected: Some(from.into()), to: None };
        Ok(Wanted { write, made: Made { from: Some(from), to: from } })
    }

    async fn write_one(&self, wanted: Wanted) -> Result<WriteAnswer<D>> {
        let answer = self.write(vec![wanted]).await?.0.pop();
        answer.ok_or_else(|| {
            Error::new(Kind::Store, "writing a document: the store returned no result; report this bug")
        })
    }

    /// Writes, and writes again if only the guard differs from the expected one, as it does after
    /// operations. Also returns whether an earlier attempt may have been written.
    pub(super) async fn write(&self, wanted: Vec<Wanted>) -> Result<(Vec<WriteAnswer<D>>, bool)> {
        let mut answers: Vec<Option<WriteAnswer<D>>> = wanted.iter().map(|_| None).collect();
        let mut made: Vec<(usize, Made)> = wanted.iter().map(|wanted| wanted.made).enumerate().collect();
        let mut writes: Arc<[ContentWrite]> = wanted.into_iter().map(|wanted| wanted.write).collect();
        let (mut tries, mut is_in_doubt, mut has_written) = (0..MAX_TRIES, false, false);
        while !writes.is_empty() {
            if tries.next().is_none() {
                let message = format!(
                    "writing to {}: operations keep changing the same documents; try again",
                    self.name()
                );
                return Err(doubted(Error::new(Kind::Unavailable, message), is_in_doubt || has_written));
            }
            let request = || self.store.write_contents(&self.collection, Arc::clone(&writes));
            let answer = self.with_retry(request).await;
            let (wrote, was_in_doubt) = answer.map_err(|error| doubted(error, is_in_doubt || has_written))?;
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
