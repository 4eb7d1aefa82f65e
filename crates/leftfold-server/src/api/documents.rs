//! Documents of collections: reading and listing them, and folding one again.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use leftfold::documents::Record;
use leftfold::fold::RepairOutcome;
use leftfold::react::{Filter, Value as Bson};
use leftfold::{Bookmark, DocumentId, Env as _, Json, System};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::audit::{Actor, Reason, reason};
use super::explanations::{AT, as_of};
use super::extract::{Named, Params, known, wait};
use super::parked::outcome_of;
use super::{Answer, Operation, PAGE_BYTES, json_of, page_limit, with_status, with_type};
use crate::access::{Scope, hexadecimal};
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The maximum number of documents to examine for one page of matches.
const MAX_EXAMINED: usize = 10_000;

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
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
        Operation::post(
            "/collections/{collection}/documents/{id}/refold",
            "refoldDocument",
            "Fold a document again from its first event",
            refold::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", reason()),
    ]
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
                let detail = "the server is stopping or reloading its configuration; send the request again";
                Err(Problem::lagging(detail).retry_after(1))
            }
        }
    };
    let document = match &params.at {
        None => get.await?,
        Some(at) => {
            if params.at_least.is_some() {
                get.await?;
            }
            let past = shared.app.past(&collection, &id, &as_of(at)?).await?;
            past.map(|document| Json::of(&document)).transpose()?
        }
    };
    let Some(document) = document else {
        return Err(Problem::missing(format!("collection {collection} has no document {id:?}")));
    };
    if let Some(fault) = document.damage() {
        let detail =
            format!("document {id:?} of collection {collection} is damaged in the store: {fault}; refold it");
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
    let most = page_limit(params.limit)?;
    let _turn = shared.turn().await;
    let filter: Option<Filter> = params.filter.as_deref().map(str::parse).transpose()?;
    let mut after = params.after.map(DocumentId::new).transpose()?;
    let (mut found, mut examined, mut is_over) = (Vec::new(), 0, false);
    let mut left = PAGE_BYTES;
    'page: while found.len() < most && examined < MAX_EXAMINED && !is_over {
        let wanted = if filter.is_some() { 500 } else { most - found.len() };
        let (records, more) =
            shared.app.store().scan_page(&collection, after.clone(), wanted, PAGE_BYTES).await?;
        is_over = !more;
        for record in records {
            if found.len() == most {
                is_over = false;
                break 'page;
            }
            examined += 1;
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

async fn refold<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named((collection, id)): Named<(String, String)>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    let outcome = shared.app.refold(&collection, &id).await?;
    let record = match &outcome {
        RepairOutcome::StillFailing(error) => format!("still failing: {error}"),
        _ => "refolded".to_owned(),
    };
    actor.did(&shared, "refold", &format!("{collection}: {id}"), reason.as_deref(), &record).await;
    json_of(&outcome_of(&outcome))
}
