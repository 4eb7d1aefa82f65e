//! Collections: their documents, their progress, and operations on parked documents.

use std::sync::PoisonError;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use leftfold::documents::{Parked, Record};
use leftfold::fold::Mended;
use leftfold::inspect::{AsOf, ExplanationCursor};
use leftfold::log::Limit;
use leftfold::react::{Filter, Value as Bson};
use leftfold::{Bookmark, Collection, DocumentId, Env as _, Json, StreamId, System, Unit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::audit::{Actor, REASON, Reason, reason};
use super::extract::{Content, MAX_WAIT, Named, Params, wait};
use super::health::answered;
use super::streams::page;
use super::{Answer, Operation, PAGE_BYTES, fill, json_of, with_status, with_type};
use crate::access::{Scope, hexadecimal};
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The maximum number of documents to examine for one page of matches.
const LOOKED_AT: usize = 10_000;
/// The description of `at`.
const AT: &str = "Read an earlier state: at a revision of its stream, after an event (stream@revision), or \
                  at a time such as 2026-01-01T00:00:00Z";

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/status",
            "status",
            "Show the progress of each projection, the held deliveries and the last errors",
            status::<S>,
        )
        .scope(Scope::Read),
        Operation::get(
            "/collections/{collection}/documents/{id}",
            "getDocument",
            "Read a document",
            get::<S>,
        )
        .scope(Scope::Read)
        .query("at_least", "Wait until the event with this bookmark is folded", "string")
        .query("wait", "The maximum time to wait for it: 5s by default, at most 60s", "string")
        .query("at", AT, "string")
        .header("If-None-Match", "The ETag of a document that the client already has")
        .answers(304, "", "The document has not changed")
        .fails(404, "The document does not exist")
        .fails(409, "The document is parked: an event could not be folded")
        .fails(503, "The event is not folded yet"),
        Operation::get(
            "/collections/{collection}/documents",
            "listDocuments",
            "List documents by id",
            list::<S>,
        )
        .scope(Scope::Read)
        .query("filter", "A filter in MongoDB's query language, as JSON", "string")
        .query("after", "The `after` of the previous page, or any id", "string")
        .query("limit", "The maximum number of documents: 100 by default, at most 1000", "integer"),
        Operation::get(
            "/collections/{collection}/documents/{id}/explanation",
            "explainDocument",
            "List the events of a document and their changes, in pages; long values are shortened",
            explain::<S>,
        )
        .scope(Scope::Read)
        .query("at", AT, "string")
        .query("after", "The `next` of the previous page", "string")
        .query(
            "limit",
            "The maximum number of events: 100 by default, at most 1000. A page also ends at 1 MiB",
            "integer",
        )
        .fails(404, "No event was folded into this document yet"),
        Operation::get(
            "/collections/{collection}/documents/{id}/absence",
            "whyNotDocument",
            "Explain why a document is missing: events never came, wait, failed, were skipped or deleted it",
            why_not::<S>,
        )
        .scope(Scope::Read),
        Operation::post(
            "/collections/{collection}/documents/{id}/refold",
            "refoldDocument",
            "Fold a document again from its first event",
            refold::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .optional_body("application/json", reason()),
        Operation::get(
            "/collections/{collection}/parked",
            "listParked",
            "List parked documents and streams",
            parked::<S>,
        )
        .scope(Scope::Operate)
        .query("after", "The `after` of the previous page", "string")
        .query("limit", "The maximum number of items: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/collections/{collection}/parked/retry",
            "retryParked",
            "Retry parked documents and streams",
            retry::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .body(
            "application/json",
            json!({
                "type": "object", "additionalProperties": false,
                "description": "The documents and streams to retry; all that are parked by default.",
                "properties": {
                    "documents": { "type": "array", "items": { "type": "string" } },
                    "streams": { "type": "array", "items": { "type": "string" } },
                    "dry_run": { "type": "boolean" },
                    "reason": { "type": "string", "description": REASON },
                },
            }),
        ),
    ]
}

async fn status<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let asked = async {
        let (projections, sequence) = (shared.app.status().await?, shared.sequencer.status().await?);
        Ok(json!({ "projections": projections, "sequence": sequence }))
    };
    let answer = match answered(&shared, asked).await {
        Ok(status) => {
            let last = Some((System.now(), status.clone()));
            *shared.last_status.lock().unwrap_or_else(PoisonError::into_inner) = last;
            status
        }
        Err(problem) => {
            // An old status is better than none, if it is marked as stale.
            let last = shared.last_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some((at, mut status)) = last else { return Err(problem) };
            status["stale"] = json!({ "since": at, "reason": shared.readiness.refusal() });
            status
        }
    };
    json_of(&answer)
}

/// Returns the collection with this name, if it exists.
pub(super) fn known<S: Backend>(shared: &Shared<S>, name: &str) -> Result<Collection, Problem> {
    let found = shared.app.projections().find(|collection| collection.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = shared.app.projections().map(Collection::as_str).collect();
        Problem::missing(format!("no collection is named {name:?}; there are: {}", names.join(", ")))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Get {
    at_least: Option<String>,
    #[serde(default, deserialize_with = "wait")]
    wait: Option<Duration>,
    at: Option<String>,
}

async fn get<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((collection, id)): Named<(String, String)>,
    Params(params): Params<Get>,
    headers: HeaderMap,
) -> Answer {
    known(&shared, &collection)?;
    let mut get = shared.app.get_as::<Json>(&collection, &id);
    if let Some(bookmark) = &params.at_least {
        get =
            get.at_least(bookmark.parse::<Bookmark>()?).within(params.wait.unwrap_or(Duration::from_secs(5)));
    }
    let is_waiting = params.at_least.is_some();
    let get = async {
        tokio::select! {
            biased;
            found = get => Ok(found?),
            () = shared.stopping(), if is_waiting => {
                let said = "the server stops or reads its configuration again; ask once more";
                Err(Problem::lagging(said).retry_after(1))
            }
        }
    };
    let document = match &params.at {
        None => get.await?,
        Some(at) => {
            if params.at_least.is_some() {
                get.await?;
            }
            let past = shared.app.past(&collection, &id, &moment(at)?).await?;
            past.map(|document| Json::of(&document)).transpose()?
        }
    };
    let Some(document) = document else {
        return Err(Problem::missing(format!("there is no document {id:?} in {collection}")));
    };
    if let Some(fault) = document.damage() {
        let detail = format!("the stored document {id:?} in {collection} is damaged: {fault}; refold it");
        return Err(Problem::damaged(detail));
    }
    let tag = etag(&document);
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|known| names(known, &tag));
    let mut response = if is_known {
        with_status(Response::default(), StatusCode::NOT_MODIFIED)
    } else {
        with_type(document.into_string(), "application/json")
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn moment(text: &str) -> Result<AsOf, Problem> {
    text.parse().map_err(|invalid| Problem::invalid(format!("at: {invalid}")))
}

/// Returns the entity tag of a document.
fn etag(document: &Json) -> String {
    format!("\"{}\"", hexadecimal(&Sha256::digest(document.as_str())[..16]))
}

/// Returns whether an `If-None-Match` header contains the tag.
fn names(header: &HeaderValue, tag: &str) -> bool {
    let Ok(header) = header.to_str() else { return false };
    header.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    filter: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn list<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(collection): Named<String>,
    Params(params): Params<List>,
) -> Answer {
    let collection = known(&shared, &collection)?;
    let most = page(params.limit)?;
    let _turn = shared.turn().await;
    let filter: Option<Filter> = params.filter.as_deref().map(str::parse).transpose()?;
    let mut after = params.after.map(DocumentId::new).transpose()?;
    let (mut found, mut looked_at, mut is_over) = (Vec::new(), 0, false);
    let mut left = PAGE_BYTES;
    'page: while found.len() < most && looked_at < LOOKED_AT && !is_over {
        let wanted = if filter.is_some() { 500 } else { most - found.len() };
        let (records, more) =
            shared.app.store().scan_page(&collection, after.clone(), wanted, PAGE_BYTES).await?;
        is_over = !more;
        for record in records {
            if found.len() == most {
                is_over = false;
                break 'page;
            }
            looked_at += 1;
            let matches = match (&filter, &record.body) {
                (_, None) => false,
                (None, _) => true,
                // A damaged document can't be matched, so it is shown.
                (Some(filter), Some(body)) => {
                    body.as_str().parse::<Bson>().is_ok_and(|body| filter.matches(&body, System.now()))
                        || body.damage().is_some()
                }
            };
            if matches && !record.fits(found.is_empty(), &mut left) {
                is_over = false;
                break 'page;
            }
            after = Some(record.id.clone());
            if matches {
                found.push(record);
            }
        }
    }
    let after = after.filter(|_| !is_over);
    let documents = found.iter().map(|Record { id, body, .. }| {
        let damaged = body.as_ref().and_then(Json::damage).map(|fault| fault.to_string());
        Listed { id, document: body.as_ref().filter(|_| damaged.is_none()), damaged }
    });
    json_of(&DocumentPage { documents: documents.collect(), after, more: !is_over })
}

/// A page of documents. Their bodies are sent as stored.
#[derive(Serialize)]
struct DocumentPage<'d> {
    documents: Vec<Listed<'d>>,
    after: Option<DocumentId>,
    more: bool,
}

#[derive(Serialize)]
struct Listed<'d> {
    id: &'d DocumentId,
    document: Option<&'d Json>,
    /// The reason why the stored document can't be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Explain {
    at: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// The maximum size of an explanation in one response, without its last event.
const EXPLAINED: usize = 1 << 20;

async fn explain<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((collection, id)): Named<(String, String)>,
    Params(params): Params<Explain>,
) -> Answer {
    known(&shared, &collection)?;
    let at = params.at.as_deref().map(moment).transpose()?;
    let after = params.after.as_deref().map(str::parse::<ExplanationCursor>).transpose()?;
    let limit = Limit { events: page(params.limit)?, bytes: EXPLAINED };
    match shared.app.explain_part(&collection, &id, at.as_ref(), after.as_ref(), limit).await? {
        Some(explanation) => json_of(&explanation),
        None => Err(Problem::missing(format!(
            "nothing was folded into a document {id:?} in {collection} yet; its absence says why"
        ))),
    }
}

async fn why_not<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((collection, id)): Named<(String, String)>,
) -> Answer {
    known(&shared, &collection)?;
    let reasons = shared.app.why_not(&collection, &id).await?;
    let reasons = reasons.iter().map(|reason| {
        let mut shown = json!(reason);
        shown["said"] = reason.to_string().into();
        shown
    });
    json_of(&json!({ "reasons": reasons.collect::<Vec<_>>() }))
}

async fn refold<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named((collection, id)): Named<(String, String)>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    let mended = shared.app.refold(&collection, &id).await?;
    let outcome = match &mended {
        Mended::StillFailing(error) => format!("still failing: {error}"),
        _ => "folded anew".to_owned(),
    };
    actor.did(&shared, "refold", &format!("{collection}: {id}"), reason.as_deref(), &outcome).await;
    json_of(&told(&mended))
}

fn told(mended: &Mended) -> Value {
    match mended {
        Mended::Repaired => json!({ "outcome": "repaired" }),
        Mended::StillFailing(error) => json!({ "outcome": "still-failing", "error": error }),
        Mended::NotParked => json!({ "outcome": "not-parked" }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paged {
    after: Option<String>,
    limit: Option<usize>,
}

async fn parked<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(collection): Named<String>,
    Params(params): Params<Paged>,
) -> Answer {
    known(&shared, &collection)?;
    let after = params.after.as_deref().map(unit).transpose()?;
    let _turn = shared.turn().await;
    let (app, name) = (&shared.app, collection.as_str());
    let read = |after: Option<Unit>, most| async move { app.parked(name, after.as_ref(), most).await };
    let key = |(unit, _): &(Unit, Parked)| unit.clone();
    let size = |(_, parked): &(Unit, Parked)| parked.error.len() + 1_000;
    let (parked, more) = fill(page(params.limit)?, after, read, key, size).await?;
    let after = parked.last().filter(|_| more).map(|(unit, _)| match unit {
        Unit::Document(id) => format!("document:{id}"),
        Unit::Stream(stream) => format!("stream:{stream}"),
    });
    let parked: Vec<_> =
        parked.into_iter().map(|(unit, parked)| json!({ "unit": unit, "parked": parked })).collect();
    json_of(&json!({ "parked": parked, "after": after, "more": more }))
}

/// Parses the unit that a page of parked units ended with.
fn unit(text: &str) -> Result<Unit, Problem> {
    match text.split_once(':') {
        Some(("document", id)) => Ok(Unit::Document(DocumentId::new(id)?)),
        Some(("stream", stream)) => Ok(Unit::Stream(StreamId::new(stream)?)),
        _ => Err(Problem::invalid(format!("after: {text:?} is none that a page ended with"))),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retry {
    documents: Vec<String>,
    streams: Vec<String>,
    dry_run: bool,
    reason: Option<String>,
}

async fn retry<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    content: Content,
) -> Answer {
    known(&shared, &collection)?;
    let Retry { documents, streams, dry_run, reason } = content.json_or_default()?;
    let named: Vec<_> = streams.iter().chain(&documents).map(String::as_str).collect();
    let target =
        if named.is_empty() { collection.clone() } else { format!("{collection}: {}", named.join(", ")) };
    let mut outcomes = Vec::new();
    let tell = |unit: &Unit, mended: &Mended| {
        let mut outcome = told(mended);
        outcome["unit"] = json!(unit);
        outcomes.push(outcome);
    };
    let documents = documents.into_iter().map(|id| Ok(Unit::Document(DocumentId::new(id)?)));
    let streams = streams.into_iter().map(|stream| Ok(Unit::Stream(StreamId::new(stream)?)));
    let units = streams.chain(documents).collect::<Result<Vec<_>, Problem>>()?;
    let mending = async {
        if units.is_empty() {
            shared.app.retry_all(&collection, dry_run, tell).await
        } else {
            shared.app.retry_some(&collection, units, dry_run, tell).await
        }
    };
    let ended = tokio::time::timeout(MAX_WAIT, mending).await;
    // Record the repairs that were made, even if a later one failed.
    if !dry_run && !outcomes.is_empty() {
        let repaired = outcomes.iter().filter(|outcome| outcome["outcome"] == "repaired").count();
        let outcome = format!("{repaired} of {} repaired", outcomes.len());
        actor.did(&shared, "retry-parked", &target, reason.as_deref(), &outcome).await;
    }
    match ended {
        Ok(done) => done?,
        Err(_) => {
            return Err(
                Problem::unavailable("not all could be tried again in time; ask once more").retry_after(1)
            );
        }
    }
    json_of(&json!({ "outcomes": outcomes, "dry_run": dry_run }))
}
