//! Idempotent writes: a request with an `Idempotency-Key` is processed once. The same request again
//! gets the first response, also after a crash.
//!
//! A hidden collection of the store records a request before it is processed, and its response
//! afterwards. Refused requests are removed again, so that clients can retry them. If a request
//! failed, or its process died, it is processed again if that is harmless. Otherwise the response
//! says that its outcome is unknown.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use http_body_util::{BodyExt as _, Collected};
use leftfold::documents::{CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record};
use leftfold::{Backoff, Collection, DocumentId, Documents, Env as _, EventId, Json, Lane, Mark, System};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::records::{Answered, Asked, Judged, Kept};
use crate::access::{Caller, hexadecimal};
use crate::problem::Problem;
use crate::{Backend, Shared, strict};

/// The number of documents that hold the requests.
const DOCUMENTS: u8 = 64;
/// The size of the largest response that is kept unchanged.
const LARGEST: usize = 64 << 10;
/// The header that marks a response as that of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The requests that this process is working on.
#[derive(Default)]
pub(crate) struct Once {
    running: Mutex<HashSet<u64>>,
    prepared: OnceCell<Collection>,
}

impl Once {
    fn is_running(&self, attempt: u64) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains(&attempt)
    }

    fn run(self: &Arc<Self>, attempt: u64) -> Running {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt);
        Running(Arc::clone(self), attempt)
    }
}

/// A request that this process is working on, as long as the guard lives.
struct Running(Arc<Once>, u64);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Returns the key that identifies a request, so that it can be repeated.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = || Problem::invalid("Idempotency-Key: 1 to 200 visible characters were expected");
    let key = key.to_str().map_err(|_| wrong())?.trim_matches('"');
    // Ids of events are derived from the key.
    let fits = (1..=200).contains(&key.len()) && EventId::new(key).is_ok();
    if fits { Ok(Some(key.to_owned())) } else { Err(wrong()) }
}

/// Makes a route idempotent for requests that have a key. `repeatable` requests may be processed
/// again if their outcome is unknown.
pub(crate) fn once<S: Backend>(
    route: MethodRouter<Shared<S>>,
    repeatable: bool,
    shared: &Shared<S>,
) -> MethodRouter<Shared<S>> {
    route.route_layer(from_fn_with_state((shared.clone(), repeatable), layer::<S>))
}

async fn layer<S: Backend>(
    State((shared, repeatable)): State<(Shared<S>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    match idempotency_key(request.headers()) {
        Ok(None) => next.run(request).await,
        // Use a separate task: the client may disconnect, and the write must still complete.
        Ok(Some(key)) => match tokio::spawn(keyed(shared, repeatable, key, request, next)).await {
            Ok(answer) => answer.unwrap_or_else(Problem::into_response),
            Err(error) => Problem::failed(format!("doing it once: {error}")).into_response(),
        },
        Err(problem) => problem.into_response(),
    }
}

async fn keyed<S: Backend>(
    shared: Shared<S>,
    repeatable: bool,
    key: String,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let (body, _share) = strict::read(body, shared.limits.body, &shared.budget).await?;
    let caller = parts.extensions.get::<Caller>().map_or("", |caller| caller.0.as_str());
    let (key, fingerprint) = (digest(&[caller.as_bytes(), key.as_bytes()]), {
        digest(&[parts.method.as_str().as_bytes(), parts.uri.to_string().as_bytes(), &body])
    });
    let attempt = System.random();
    let _running = shared.once.run(attempt);
    let judge = |kept: &mut Kept| {
        let (key, fingerprint, by) = (&key[..], &fingerprint[..], &shared.name[..]);
        let asked = Asked { key, fingerprint, by, attempt, now: System.now(), repeatable };
        kept.judge(&asked, |attempt| shared.once.is_running(attempt))
    };
    match change(&shared, &key, judge).await? {
        Judged::Do => {}
        Judged::Again(answer) => return Ok(replayed(answer)),
        Judged::UnderWay => {
            let said = "a request with this Idempotency-Key is under way; send it again to hear how it ended";
            return Err(Problem::conflict(said).retry_after(1));
        }
        Judged::Other => {
            return Err(Problem::key_reused(
                "another request had this Idempotency-Key; give this one its own",
            ));
        }
        Judged::Unknown => {
            let said = "a request with this Idempotency-Key was begun, and nobody knows how it ended; \
                        see whether it was done, and use another key if it was not";
            return Err(Problem::conflict(said));
        }
        Judged::Full => {
            return Err(Problem::full("too many requests with keys were made within a day").retry_after(60));
        }
    }
    let answer = next.run(Request::from_parts(parts.clone(), Body::from(body))).await;
    let (answer, kept) = taken(answer).await;
    // A failed request may have taken effect all the same. If it must not be repeated, it stays
    // recorded as begun, with an unknown outcome.
    if answer.status().is_server_error() && !repeatable {
        return Ok(answer);
    }
    // The request is done, even if that can't be recorded.
    if let Err(problem) = change(&shared, &key, |all: &mut Kept| all.end(&key, attempt, kept.clone())).await {
        tracing::warn!(
            ?problem,
            path = parts.uri.path(),
            "an answer could not be kept for its Idempotency-Key"
        );
    }
    Ok(answer)
}

/// Returns the response, and the part to keep of it: `None` if nothing was done.
async fn taken(answer: Response) -> (Response, Option<Answered>) {
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    let Ok(body) = body.collect().await.map(Collected::to_bytes) else {
        return (Problem::failed("the answer could not be made").into_response(), None);
    };
    let kept = status.is_success().then(|| {
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let body = match str::from_utf8(&body) {
            Ok(text) if body.len() <= LARGEST => text.to_owned(),
            _ => r#"{"detail":"it was done; the answer was too large to be kept"}"#.to_owned(),
        };
        Answered { status: status.as_u16(), kind: kind.to_owned(), body }
    });
    (Response::from_parts(parts, Body::from(body)), kept)
}

fn replayed(answer: Answered) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    if let Ok(kind) = HeaderValue::from_str(&answer.kind) {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize())
}

/// Changes the document that holds a request by compare-and-set, and retries until that succeeds.
async fn change<S: Backend, T>(
    shared: &Shared<S>,
    key: &str,
    mut change: impl FnMut(&mut Kept) -> T,
) -> Result<T, Problem> {
    let store = shared.app.store();
    let collection = shared.once.prepared.get_or_try_init(|| prepared(store)).await?;
    let number = u8::from_str_radix(key.get(..2).unwrap_or_default(), 16).unwrap_or_default() % DOCUMENTS;
    let id = DocumentId::new(number.to_string())?;
    let lane = Lane::named("changes");
    let mut delays = Backoff::default().limit(10).delays(System.random());
    loop {
        let before = store.load_current(collection, vec![id.clone()]).await?.pop();
        let mut kept: Kept = match before.as_ref().and_then(|record| record.body.as_ref()) {
            Some(body) => body.to()?,
            None => Kept::default(),
        };
        let was = kept.clone();
        let answer = change(&mut kept);
        if kept == was {
            return Ok(answer);
        }
        let expected = before.map(|record| record.header);
        let changes = expected.as_ref().map_or(0, |header| header.mark.get(&lane));
        let mark = Mark::from_iter([(lane.clone(), changes + 1)]);
        let body = Some(Json::of(&kept)?);
        let record = Record { id: id.clone(), header: Header { mark, parked: None }, body };
        let changes = CollectionWrites {
            collection: collection.clone(),
            writes: vec![DocumentWrite { expected, record }],
        };
        let outcome = store.commit(Arc::new(Commit { advance: None, changes: vec![changes] })).await?;
        let failed = match outcome {
            CommitOutcome::Applied => return Ok(answer),
            CommitOutcome::Conflict(_) => Problem::unavailable("others keep noting requests; send it again"),
            CommitOutcome::Unknown(error) => error.into(),
        };
        let Some(delay) = delays.next() else { return Err(failed.retry_after(1)) };
        sleep(delay).await;
    }
}

/// Prepares a hidden collection: a generation that no rebuild ever reaches, even if a read model
/// has this name.
async fn prepared<S: Documents>(store: &S) -> leftfold::Result<Collection> {
    let collection = Collection::new("requests")?.generation(u32::MAX);
    store.prepare(&collection).await?;
    Ok(collection)
}
