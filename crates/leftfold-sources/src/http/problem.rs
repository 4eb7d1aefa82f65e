//! Problem details as in RFC 9457.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leftfold::{Error, Kind};
use serde::Serialize;

use super::answers::EventOutcome;

/// A failure of a request: `application/problem+json`.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    r#type: &'static str,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    /// The outcome of each event, if there were several, or of one that must be sent again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<EventOutcome>,
    #[serde(skip)]
    retry_after: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident = $status:ident $kind:literal $title:literal;)*) => {
        impl Problem {
            $(
                $(#[$doc])*
                pub(super) fn $name(detail: impl Into<String>) -> Self {
                    Self {
                        r#type: concat!("urn:leftfold:problem:", $kind),
                        title: $title,
                        status: StatusCode::$status,
                        detail: detail.into(),
                        answers: Vec::new(),
                        retry_after: None,
                    }
                }
            )*
        }
    };
}

problems! {
    invalid = BAD_REQUEST "invalid-event" "The event is invalid";
    unreadable = BAD_REQUEST "unreadable-body" "The body can't be read";
    too_large = PAYLOAD_TOO_LARGE "too-large" "The body is too large";
    unsupported = UNSUPPORTED_MEDIA_TYPE "unsupported-type" "The content type is not supported";
    not_allowed = METHOD_NOT_ALLOWED "method-not-allowed" "The method is not allowed here";
    full = TOO_MANY_REQUESTS "full" "There is no room for some events";
    contended = SERVICE_UNAVAILABLE "contended" "Other writers keep changing the same data";
    unavailable = SERVICE_UNAVAILABLE "store-unavailable" "The store is unavailable";
    failed = INTERNAL_SERVER_ERROR "store-failed" "The store failed";
}

impl Problem {
    /// Returns the problem for a failure of the store.
    pub(super) fn of(error: &Error) -> Self {
        let detail = error.to_string();
        tracing::warn!(%error, "ingesting posted events failed");
        match error.kind() {
            Kind::Invalid => Self::invalid(detail),
            Kind::Full => Self::full(detail).retry_after(5),
            Kind::Contended => Self::contended(detail).retry_after(1),
            Kind::Unavailable | Kind::Unknown | Kind::Stopped => Self::unavailable(detail).retry_after(1),
            _ => Self::failed(detail),
        }
    }

    /// Returns the problem for events without room.
    pub(super) fn no_room(seconds: u64, answers: Vec<EventOutcome>) -> Self {
        let refused = answers.iter().filter(|outcome| outcome.retry_after().is_some()).count();
        let detail = format!(
            "{refused} of {} events were refused; send them again in {seconds} seconds",
            answers.len()
        );
        Self { answers, ..Self::full(detail) }.retry_after(seconds)
    }

    /// Sets `Retry-After`, in seconds; at least one.
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        match self.status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                let accepted =
                    "application/cloudevents+json, application/cloudevents-batch+json, application/x-ndjson";
                headers.insert("accept-post", HeaderValue::from_static(accepted));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert("allow", HeaderValue::from_static("POST"));
            }
            _ => {}
        }
        response
    }
}
