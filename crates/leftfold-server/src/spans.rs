//! A span for each request: its method, the route it is for, and the status of its answer. Nothing else of it, as paths and queries may hold what
//! is not for those who look at spans.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

/// Answers within a span, if anybody wants to hear of it.
pub(crate) async fn spanned(request: Request, next: Next) -> Response {
    // It has the names that OpenTelemetry gives such things.
    let span = tracing::debug_span!(
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = %request.method(),
        http.route = Empty,
        http.response.status_code = Empty,
    );
    if span.is_disabled() {
        return next.run(request).await;
    }
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        span.record("http.route", route.as_str());
        span.record("otel.name", display(format_args!("{} {}", request.method(), route.as_str())));
    }
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}
