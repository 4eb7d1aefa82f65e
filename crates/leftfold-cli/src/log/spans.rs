//! The export of spans and their log events to a collector: OTLP over HTTP, in batches.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leftfold_terminal::{Exit, Failure};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// The timeout of a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// The timeout for the last batch when the process ends.
const GRACE: Duration = Duration::from_secs(5);
/// The maximum size of a response.
const ANSWER: usize = 64 << 10;

/// An exporter of spans.
pub(crate) struct Spans(SdkTracerProvider);

impl Spans {
    /// Creates an exporter to the collector at this URL, without the path that OTLP has for spans.
    pub(crate) fn new(url: &str, service: &str) -> Result<Self, Failure> {
        let wrong =
            |expected: &str| Failure::new(Exit::Usage, format!("log.opentelemetry: expected {expected}"));
        let uri = url.parse::<hyper::Uri>().ok().filter(|uri| uri.authority().is_some());
        let uri = uri.ok_or_else(|| wrong("a URL such as http://localhost:4318"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("a URL without user and password; set a header in OTEL_EXPORTER_OTLP_HEADERS"));
        }
        let client = Sending::new(uri.scheme_str()).map_err(wrong)?;
        let sender = Sender { runtime: Handle::current(), client, is_failing: Arc::default() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_timeout(PATIENCE)
            .with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')))
            .build()
            .map_err(|error| Failure::new(Exit::Usage, format!("log.opentelemetry: {error}")))?;
        let resource = Resource::builder().with_service_name(service.to_owned()).build();
        Ok(Self(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
    }

    /// Returns the layer that collects spans. It does not depend on the log filter.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        // Only our own spans: the exporter's would be exported without end.
        let ours = Targets::new().with_target("leftfold", LevelFilter::DEBUG);
        let spans = tracing_opentelemetry::layer().with_tracer(self.0.tracer("leftfold"));
        spans.with_location(false).with_threads(false).with_tracked_inactivity(false).with_filter(ours)
    }

    /// Sends the remaining spans.
    pub(crate) async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(GRACE)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// An HTTP client for the exporter.
struct Sender {
    /// The exporter calls from its own thread, which has no runtime.
    runtime: Handle,
    client: Sending,
    is_failing: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Sending {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Sending {
    /// Creates a client. Certificates must be trusted by the system.
    fn new(scheme: Option<&str>) -> Result<Self, &'static str> {
        let client = Client::builder(TokioExecutor::new());
        match scheme {
            Some("http") => Ok(Self::Plain(client.build_http())),
            Some("https") => {
                let ring = rustls::crypto::ring::default_provider();
                let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring);
                let tls = tls.map_err(|_| "a system with trusted certificates")?;
                Ok(Self::Tls(client.build(tls.https_only().enable_http1().build())))
            }
            _ => Err("a URL that begins with http:// or https://"),
        }
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = request.map(Full::new);
        let answer = match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        };
        let (parts, body) = answer.await?.into_parts();
        let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

type Answered<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Sender {
    fn send_bytes<'s, 'f>(&'s self, request: Request<Bytes>) -> Answered<'f>
    where
        's: 'f,
        Self: 'f,
    {
        let (client, is_failing) = (self.client.clone(), Arc::clone(&self.is_failing));
        let sending = self.runtime.spawn(async move {
            let answer = timeout(PATIENCE, client.send(request)).await;
            let answer = answer.unwrap_or_else(|_| Err("the collector does not respond in time".into()));
            let failure = match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("the collector responded {}", answer.status())),
                Err(error) => Some(error.to_string()),
            };
            // Log once, until the export works again.
            let was_failing = is_failing.swap(failure.is_some(), Ordering::Relaxed);
            match failure {
                Some(error) if !was_failing => tracing::warn!(error, "spans can't be exported"),
                None if was_failing => tracing::info!("spans are exported again"),
                _ => {}
            }
            answer
        });
        Box::pin(async move { sending.await? })
    }
}
