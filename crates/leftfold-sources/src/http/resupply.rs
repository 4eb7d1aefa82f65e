//! Requests missing events from an HTTP endpoint.

use std::fmt::{self, Write as _};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{ACCEPT, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leftfold::sequence::{Missing, Resupply};
use leftfold::{Delivery, Env as _, Error, Invalid, Kind, Result, System};
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::mapping::{BATCH, Mapping, STRUCTURED};
use crate::message::Message;

/// A resupplier that requests events from an HTTP endpoint.
///
/// # The contract
///
/// `GET {url}?stream=cart-42&after=3&through=7` returns the events of that stream with revisions
/// above `after` and up to `through`. The response is `application/cloudevents-batch+json`: a JSON
/// array of structured CloudEvents. Each has `subject` = stream and `sequence` = revision, and
/// `previous` if the subscription is filtered.
///
/// The events may be in any order, and may be only a part of the range: the rest is then requested
/// again. Additional events are harmless. An empty array, 204 or 404 means that the endpoint has
/// none of them.
///
/// ```
/// use leftfold::{Memory, Sequencer};
/// use leftfold::sequence::{Healer, Healing};
/// use leftfold_sources::http::HttpResupplier;
///
/// let origin = HttpResupplier::new("https://orders.example/events")?.header("authorization", "Bearer …")?;
/// let healer = Healer::new(Sequencer::new(Memory::default()), origin, Healing::default());
/// # Ok::<(), leftfold::Error>(())
/// ```
#[derive(Clone)]
pub struct HttpResupplier {
    url: String,
    /// The URL as shown in errors.
    shown: String,
    headers: HeaderMap,
    mapping: Mapping,
    patience: Duration,
    max_bytes: usize,
    client: HttpClient,
}

#[derive(Clone)]
enum HttpClient {
    Http(Client<HttpConnector, Empty<Bytes>>),
    Https(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>),
}

impl fmt::Debug for HttpResupplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResupplier").field("url", &self.shown).finish_non_exhaustive()
    }
}

impl HttpResupplier {
    /// Creates a resupplier for this URL, which may have a query of its own. Certificates must be
    /// trusted by the system.
    pub fn new(url: &str) -> Result<Self> {
        // Errors show neither a password nor a query.
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let shown = match (shown.find("://"), shown.rfind('@')) {
            (Some(scheme), Some(at)) if scheme + 3 <= at => {
                format!("{}…{}", &shown[..scheme + 3], &shown[at..])
            }
            _ => shown.to_owned(),
        };
        let invalid = |expected: &str| Invalid::new("URL of a resupplier", &shown, expected);
        let uri: Uri = url.parse().map_err(|_| invalid("a URL such as https://orders.example/events"))?;
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(
                invalid("a URL with a host, and without user and password; send a header instead").into()
            );
        }
        let client = Client::builder(TokioExecutor::new());
        let client = match uri.scheme_str() {
            Some("http") => HttpClient::Http(client.build_http()),
            Some("https") => {
                let ring = rustls::crypto::ring::default_provider();
                let tls =
                    HttpsConnectorBuilder::new().with_provider_and_native_roots(ring).map_err(|error| {
                        let doing = format!(
                            "preparing requests to {shown}: the system has no trusted certificates; install them"
                        );
                        Error::new(Kind::Invalid, doing).with_source(error)
                    })?;
                HttpClient::Https(client.build(tls.https_only().enable_http1().build()))
            }
            _ => return Err(invalid("a URL that begins with http:// or https://").into()),
        };
        Ok(Self {
            url: url.split('#').next().unwrap_or_default().to_owned(),
            shown,
            headers: HeaderMap::new(),
            mapping: Mapping::default(),
            patience: Duration::from_secs(20),
            max_bytes: 64 << 20,
            client,
        })
    }

    /// Adds a header to each request. Its value is never shown.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let invalid = |shown: &str, expected: &str| Invalid::new("header of a resupplier", shown, expected);
        let name = HeaderName::try_from(name).map_err(|_| invalid(name, "a header name of HTTP"))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| invalid(name.as_str(), "a value without control characters"))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sets the mapping of the events. It should be the mapping of the feed. The default is
    /// CloudEvents.
    #[must_use]
    pub fn mapping(self, mapping: Mapping) -> Self {
        Self { mapping, ..self }
    }

    /// Sets the timeout of a request, from the first byte sent to the last one received. The
    /// default is 20 seconds.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets the maximum size of a response. The default is 64 MiB.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    async fn request(&self, missing: &Missing) -> Result<Bytes> {
        let Missing { stream, after, through } = missing;
        let doing =
            format!("requesting revisions {} to {through} of {stream} from {}", after.0 + 1, self.shown);
        let failed = |kind, why: String| Error::new(kind, format!("{doing}: {why}"));
        let begin = if self.url.contains('?') { '&' } else { '?' };
        let url =
            format!("{}{begin}stream={}&after={after}&through={through}", self.url, escaped(stream.as_str()));
        let mut request = Request::get(url)
            .body(Empty::new())
            .map_err(|error| failed(Kind::Invalid, format!("invalid address: {error}")))?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(BATCH));
        let sent = match &self.client {
            HttpClient::Http(client) => client.request(request).await,
            HttpClient::Https(client) => client.request(request).await,
        };
        let response = sent.map_err(|error| failed(Kind::Unavailable, chain(&error)))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => return Ok(Bytes::from_static(b"[]")),
            status => return Err(failed(Kind::Unavailable, format!("the response is {status}"))),
        }
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.to_ascii_lowercase().starts_with(BATCH) {
            return Err(failed(Kind::Invalid, format!("the response is {kind:?}, not {BATCH}")));
        }
        match Limited::<Incoming>::new(response.into_body(), self.max_bytes).collect().await {
            Ok(read) => Ok(read.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(failed(
                Kind::Invalid,
                format!("the response has more than {} bytes; return fewer events at a time", self.max_bytes),
            )),
            Err(error) => Err(failed(Kind::Unavailable, format!("the response broke off: {error}"))),
        }
    }
}

impl Resupply for HttpResupplier {
    async fn resupply(&self, missing: Missing) -> Result<Vec<Delivery>> {
        let body = timeout(self.patience, self.request(&missing)).await.map_err(|_| {
            let doing =
                format!("requesting events from {}: no response within {:?}", self.shown, self.patience);
            Error::new(Kind::Unavailable, doing)
        })??;
        let events: Vec<&RawValue> = serde_json::from_slice(&body).map_err(|error| {
            let doing = format!("requesting events from {}: expected a JSON array of events", self.shown);
            Error::new(Kind::Invalid, doing).with_source(error)
        })?;
        let kind = match self.mapping {
            Mapping::CloudEvents(_) => STRUCTURED,
            Mapping::Fields(_) => "application/json",
        };
        let (mut deliveries, mut reasons) = (Vec::new(), Vec::new());
        for event in events {
            let message = Message::new(event.get()).with("content-type", kind);
            match self.mapping.map(&message, System.now()) {
                Ok(delivery) => deliveries.push(delivery),
                Err(reason) => reasons.push(reason),
            }
        }
        if let Some(reason) = reasons.first() {
            let (url, count) = (&self.shown[..], reasons.len());
            tracing::warn!(url, count, %reason, "a resupplier returned invalid events");
            if deliveries.is_empty() {
                let doing =
                    format!("requesting events from {url}: {count} of {count} events are invalid: {reason}");
                return Err(Error::new(Kind::Invalid, doing));
            }
        }
        Ok(deliveries)
    }
}

/// Escapes a value for a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Formats an error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
