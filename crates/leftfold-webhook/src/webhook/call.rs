//! The call of a webhook, as a handler of a reaction.

use std::fmt::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use leftfold::react::{Context, DocumentSource, Draft, HandlerError, Reaction, Retry};
use leftfold::{DocumentId, Env as _, Error, Invalid, Json, Kind, Result, System};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::answer::{WebhookOutcome, WebhookResponse, judge};
use crate::guard::{AddressGuard, Resolver};
use crate::sign::Signer;

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of bytes of a response to read.
const MAX_READ: usize = 4 << 10;
/// The maximum number of idle connections to keep.
const MAX_IDLE: usize = 16;

/// Returns the retry policy that Standard Webhooks suggest: after 5 seconds, 5 and 30 minutes, then
/// hours; ten attempts over three days.
pub fn usual_retry() -> Retry {
    let hours = [2, 5, 10, 14, 20, 24].map(Duration::from_hours);
    let waits = [Duration::from_secs(5), Duration::from_mins(5), Duration::from_mins(30)];
    Retry::series(waits.into_iter().chain(hours)).attempts(10)
}

/// A URL to post to.
///
/// The body is JSON: `{ "type": …, "timestamp": …, "data": { "collection": …, "id": …, "document":
/// … } }`. The type is the reaction's name, the timestamp is the time of the change, and the
/// document is the current one.
///
/// `webhook-id` is the [idempotency key](Context::idempotency_key). Characters other than letters,
/// digits, `-`, `_`, `~`, `/` and `:` are escaped as in URLs.
#[derive(Clone)]
pub struct Webhook {
    url: Uri,
    /// The URL as shown in errors: paths and queries may contain secrets.
    shown: String,
    signer: Signer,
    patience: Duration,
    client: HttpClient,
}

#[derive(Clone)]
enum HttpClient {
    Http(Client<HttpConnector<Resolver>, Full<Bytes>>),
    Https(Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>),
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("url", &self.shown).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'a str,
    timestamp: Timestamp,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    collection: &'a str,
    id: &'a DocumentId,
    document: &'a Json,
}

impl Webhook {
    /// Creates a webhook that posts to this URL. It must begin with `https://`, unless its host is
    /// in an allowed network. Certificates must be trusted by the system.
    pub fn new(url: &str, signer: Signer, guard: AddressGuard) -> Result<Self> {
        let invalid = |shown: &str, expected: &str| Invalid::new("URL of a webhook", shown, expected);
        let uri: Uri = url.parse().map_err(|_| invalid("…", "a URL such as https://shop.example/hooks"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid("…", "a URL with a host, such as https://shop.example/hooks").into());
        };
        if authority.as_str().contains('@') {
            return Err(invalid("…", "a URL without user and password, because calls are signed").into());
        }
        let shown = format!("{scheme}://{authority}");
        let guard = match scheme {
            "https" => guard,
            "http" => guard.for_plain_http(),
            _ => return Err(invalid(&shown, "a URL that begins with https://").into()),
        };
        guard
            .check_literal(authority.host())
            .map_err(|refused| invalid(&shown, &format!("a permitted address: {refused}")))?;
        let mut connector = HttpConnector::new_with_resolver(Resolver(guard));
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.enforce_http(scheme == "http");
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_max_idle_per_host(MAX_IDLE);
        let client = if scheme == "http" {
            HttpClient::Http(client.build(connector))
        } else {
            let ring = rustls::crypto::ring::default_provider();
            let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring).map_err(|error| {
                let doing = format!(
                    "preparing to call {shown}: the system has no trusted certificates; install them"
                );
                Error::new(Kind::Invalid, doing).with_source(error)
            })?;
            HttpClient::Https(client.build(tls.https_only().enable_http1().wrap_connector(connector)))
        };
        Ok(Self { url: uri, shown, signer, patience: Duration::from_secs(15), client })
    }

    /// Sets the timeout of a call, from resolving the name to the beginning of the response. The
    /// default is 15 seconds.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Makes a reaction call the webhook, at least once for the last state of each matching
    /// document.
    pub fn run(self, draft: Draft<Json>) -> Reaction {
        draft.run(move |ctx| {
            let webhook = self.clone();
            async move { webhook.call(&ctx).await }
        })
    }

    async fn call(&self, ctx: &Context<Json>) -> Result<(), HandlerError> {
        let document = ctx.document().await?;
        let task = ctx.task();
        let collection = match ctx.on() {
            Some(DocumentSource::Projection(collection)) => collection.to_string(),
            Some(DocumentSource::External(collection)) => collection.as_str().to_owned(),
            None => String::new(),
        };
        let data = Data { collection: &collection, id: ctx.id(), document: &document };
        let message = Message { r#type: &task.key.reaction, timestamp: task.since, data };
        let shown = &self.shown;
        match self.post(&escaped(&ctx.idempotency_key()), serde_json::to_vec(&message)?.into()).await? {
            WebhookOutcome::Done => Ok(()),
            WebhookOutcome::Later(by) => {
                ctx.defer(by);
                Ok(ctx.throttle(by).await?)
            }
            WebhookOutcome::Gone(why) => {
                // The task stays pending, in case the receiver's response was a mistake.
                ctx.defer(Duration::ZERO);
                Ok(ctx
                    .pause(&format!("calling {shown}: {why}; resume the reaction to call it again"))
                    .await?)
            }
            WebhookOutcome::Failed(why) => Err(format!("calling {shown}: {why}").into()),
        }
    }

    /// Posts a body under an id, and returns the outcome.
    pub(super) async fn post(&self, id: &str, body: Bytes) -> Result<WebhookOutcome, HandlerError> {
        let deadline = Instant::now() + self.patience;
        let sent = System.now();
        let signature = self.signer.sign(id, sent, &body);
        let request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static(concat!("leftfold/", env!("CARGO_PKG_VERSION"))))
            .header("webhook-id", id)
            .header("webhook-timestamp", sent.as_second())
            .header("webhook-signature", signature)
            .body(Full::new(body))?;
        let response = timeout_at(deadline, async {
            match &self.client {
                HttpClient::Http(client) => client.request(request).await,
                HttpClient::Https(client) => client.request(request).await,
            }
        });
        let response = match response.await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let error = HandlerError::from(error);
                return Err(format!("calling {}: {error}", self.shown).into());
            }
            Err(_) => {
                return Err(format!("calling {}: no response within {:?}", self.shown, self.patience).into());
            }
        };
        let (head, beginning) = beginning(response, deadline).await;
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let answer = WebhookResponse { status: head.status.as_u16(), retry_after, beginning: &beginning };
        Ok(judge(answer, System.now()))
    }
}

/// Reads the beginning of a response, as far as it arrives in time. The status alone decides the
/// outcome.
async fn beginning(
    response: Response<Incoming>,
    deadline: Instant,
) -> (hyper::http::response::Parts, Vec<u8>) {
    let (head, mut body) = response.into_parts();
    let mut read = Vec::new();
    while read.len() < MAX_READ {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                read.extend_from_slice(&data[..data.len().min(MAX_READ - read.len())]);
            }
            _ => break,
        }
    }
    (head, read)
}

/// Escapes an id for Standard Webhooks: it goes into a header and must not contain a dot.
pub(super) fn escaped(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~/:".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
