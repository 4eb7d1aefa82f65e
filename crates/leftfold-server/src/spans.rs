//! A span for each request: its method, its route, and the status of the response. Paths and
//! queries are left out, because they may contain data that readers of the spans must not see.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

/// Responds within a span, if a subscriber wants it.
pub(crate) async fn spanned(request: Request, next: Next) -> Response {
    // The field names are those of OpenTelemetry.
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
