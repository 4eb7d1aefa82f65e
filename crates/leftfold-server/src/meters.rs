//! Counts of requests by route and status, and of refused authentications.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use leftfold::fold::Histogram;
use tokio::time::Instant;

/// Upper bounds of the latency buckets, in seconds.
const SECONDS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Refused authentications are logged at most this often.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

/// All counts of a server. They continue when its configuration is replaced.
#[derive(Default)]
pub(crate) struct Meters(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    requests: BTreeMap<Counted, u64>,
    /// The time until the response began, by route.
    seconds: BTreeMap<String, Histogram>,
    /// The number of refused authentications, by reason.
    refused: BTreeMap<&'static str, u64>,
    /// The time of the last logged refusal, and the number of refusals since then.
    logged: Option<Instant>,
    unlogged: u64,
}

/// Requests that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted {
    pub(crate) method: &'static str,
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// The address of a request's client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Meters {
    pub(crate) fn requests(&self) -> Vec<(Counted, u64)> {
        self.counts().requests.iter().map(|(counted, number)| (counted.clone(), *number)).collect()
    }

    pub(crate) fn seconds(&self) -> Vec<(String, Histogram)> {
        self.counts().seconds.iter().map(|(route, seconds)| (route.clone(), seconds.clone())).collect()
    }

    pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
        self.counts().refused.iter().map(|(reason, number)| (*reason, *number)).collect()
    }

    /// Counts a refused authentication. Logs it unless another one was logged just before.
    pub(crate) fn refuse(&self, reason: &'static str, token: Option<&str>, request: &Request) {
        let now = Instant::now();
        let mut counts = self.counts();
        *counts.refused.entry(reason).or_default() += 1;
        if counts.logged.is_some_and(|logged| now.duration_since(logged) < LOGGED_EVERY) {
            counts.unlogged += 1;
            return;
        }
        counts.logged = Some(now);
        let unlogged = std::mem::take(&mut counts.unlogged);
        drop(counts);
        let client = request.extensions().get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default();
        let (method, route) = (request.method(), route(request));
        let token = token.unwrap_or_default();
        tracing::warn!(reason, client, token, %method, route, unlogged, "authentication refused");
    }

    fn answered(&self, counted: Counted, took: Duration) {
        let mut counts = self.counts();
        let seconds = counts.seconds.entry(counted.route.clone()).or_insert_with(|| Histogram::new(SECONDS));
        seconds.add(took.as_secs_f64());
        *counts.requests.entry(counted).or_default() += 1;
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // No operation under this lock can fail halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request and its response.
pub(crate) async fn counted(State(meters): State<Arc<Meters>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (method, route) = (name(request.method()), route(&request));
    let answer = next.run(request).await;
    let status = answer.status().as_u16();
    meters.answered(Counted { method, route, status }, begun.elapsed());
    answer
}

/// Returns the route's pattern: a path could be any text.
fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned()
}

/// Returns the method, or one name for all others: clients may invent methods.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
