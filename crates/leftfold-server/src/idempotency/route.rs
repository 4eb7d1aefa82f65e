//! The layer that makes a route idempotent.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use http_body_util::{BodyExt as _, Collected};
use leftfold::{Env as _, EventId, System};
use sha2::{Digest as _, Sha256};

use super::records::{AfterUnknown, KeyedRequest, RequestRecords, StoredAnswer, Verdict};
use super::store::change;
use crate::access::{Caller, hexadecimal};
use crate::problem::Problem;
use crate::{Backend, Service, Shared, strict};

/// The header that marks a response as that of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Returns whether a header belongs to the identity of a request. Its name is in lower case.
pub(crate) type IdentifyingHeaders<S> = fn(&Service<S>, &str) -> bool;

/// The treatment of a route's requests with an `Idempotency-Key`.
pub(crate) struct Keyed<S: Backend> {
    pub(crate) after_unknown: AfterUnknown,
    /// Besides the method, the address and the body, these headers tell requests apart.
    pub(crate) identifying_headers: IdentifyingHeaders<S>,
}

impl<S: Backend> Clone for Keyed<S> {
    fn clone(&self) -> Self {
        Self { after_unknown: self.after_unknown, identifying_headers: self.identifying_headers }
    }
}

/// Makes a route idempotent for requests that have a key.
pub(crate) fn keyed<S: Backend>(
    route: MethodRouter<Shared<S>>,
    treatment: Keyed<S>,
    shared: &Shared<S>,
) -> MethodRouter<Shared<S>> {
    route.route_layer(from_fn_with_state((shared.clone(), treatment), layer::<S>))
}

/// Returns the key that identifies a request, so that it can be repeated.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = || Problem::invalid("Idempotency-Key: expected 1 to 200 visible characters");
    let key = key.to_str().map_err(|_| wrong())?.trim_matches('"');
    // Ids of events are derived from the key.
    let fits = (1..=200).contains(&key.len()) && EventId::new(key).is_ok();
    if fits { Ok(Some(key.to_owned())) } else { Err(wrong()) }
}

async fn layer<S: Backend>(
    State((shared, treatment)): State<(Shared<S>, Keyed<S>)>,
    request: Request,
    next: Next,
) -> Response {
    match idempotency_key(request.headers()) {
        Ok(None) => next.run(request).await,
        // Use a separate task: the client may disconnect, and the write must still complete.
        Ok(Some(key)) => match tokio::spawn(process(shared, treatment, key, request, next)).await {
            Ok(answer) => answer.unwrap_or_else(Problem::into_response),
            Err(error) => Problem::failed(format!("processing the request: {error}")).into_response(),
        },
        Err(problem) => problem.into_response(),
    }
}

/// Processes a request with a key, or returns the response to an earlier one.
async fn process<S: Backend>(
    shared: Shared<S>,
    treatment: Keyed<S>,
    key: String,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let Keyed { after_unknown, identifying_headers } = treatment;
    let (parts, body) = request.into_parts();
    let (body, _share) = strict::read(body, shared.limits.body, &shared.budget).await?;
    let caller = parts.extensions.get::<Caller>().map_or("", |caller| caller.0.as_str());
    let key = digest([caller.as_bytes(), key.as_bytes()]);
    let fingerprint = fingerprint(&parts, &body, |name| identifying_headers(&shared, name));
    let attempt = System.random();
    let _running = shared.keyed_requests.run(attempt);
    let judge = |records: &mut RequestRecords| {
        let (key, fingerprint, by) = (&key[..], &fingerprint[..], &shared.name[..]);
        let request = KeyedRequest { key, fingerprint, by, attempt, now: System.now(), after_unknown };
        records.judge(&request, |attempt| shared.keyed_requests.is_running(attempt))
    };
    match change(&shared, &key, judge).await? {
        Verdict::Process => {}
        Verdict::Replay(answer) => return Ok(replayed(answer)),
        refused => return Err(refusal(&refused)),
    }
    let answer = next.run(Request::from_parts(parts.clone(), Body::from(body))).await;
    let (answer, stored) = stored(answer).await;
    // A failed request may have taken effect all the same. If it must not be repeated, it stays
    // recorded as begun, with an unknown outcome.
    if answer.status().is_server_error() && after_unknown == AfterUnknown::Refuse {
        return Ok(answer);
    }
    // The request is done, even if that can't be recorded.
    let end = |records: &mut RequestRecords| records.end(&key, attempt, stored.clone());
    if let Err(problem) = change(&shared, &key, end).await {
        tracing::warn!(
            ?problem,
            path = parts.uri.path(),
            "recording the response to an Idempotency-Key failed"
        );
    }
    Ok(answer)
}

/// Returns the problem for a request that is neither processed nor replayed.
fn refusal(verdict: &Verdict) -> Problem {
    match verdict {
        Verdict::InProgress => {
            let detail =
                "a request with this Idempotency-Key is in progress; repeat it later for its response";
            Problem::conflict(detail).retry_after(1)
        }
        Verdict::KeyReused => Problem::key_reused(
            "another request used this Idempotency-Key; send this one with a key of its own",
        ),
        Verdict::Full => {
            let detail = "too many requests with an Idempotency-Key within a day; send it without, or later";
            Problem::full(detail).retry_after(60)
        }
        _ => Problem::conflict(
            "a request with this Idempotency-Key began, and its outcome is unknown; \
             check its effect, and use another key if it had none",
        ),
    }
}

/// Returns the response, and the part to store of it: `None` if nothing was done.
async fn stored(answer: Response) -> (Response, Option<StoredAnswer>) {
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    let Ok(body) = body.collect().await.map(Collected::to_bytes) else {
        return (Problem::failed("reading the response failed").into_response(), None);
    };
    let stored = status.is_success().then(|| {
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        StoredAnswer::new(status.as_u16(), kind, &body)
    });
    (Response::from_parts(parts, Body::from(body)), stored)
}

fn replayed(answer: StoredAnswer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    if let Ok(kind) = HeaderValue::from_str(&answer.kind) {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Returns what tells requests with the same key apart.
fn fingerprint(parts: &Parts, body: &[u8], identifies: impl Fn(&str) -> bool) -> String {
    let uri = parts.uri.to_string();
    let mut headers: Vec<_> = parts.headers.keys().filter(|name| identifies(name.as_str())).collect();
    headers.sort_by_key(|name| name.as_str());
    let headers = headers.into_iter().flat_map(|name| {
        let values = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        [name.as_str().as_bytes()].into_iter().chain(values)
    });
    digest([parts.method.as_str().as_bytes(), uri.as_bytes(), body].into_iter().chain(headers))
}

/// Returns a digest that differs for different lists of parts.
fn digest<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize())
}
