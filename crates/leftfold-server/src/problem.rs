//! Problem details as in RFC 9457.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leftfold::budget::Exhausted;
use leftfold::react::FilterError;
use leftfold::{AppendError, Error, Invalid, Kind, ReadError};
use serde_json::{Map, Value, json};

/// A failure of a request: `application/problem+json`.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: &'static str,
    title: &'static str,
    status: StatusCode,
    detail: String,
    /// Additional members, by name.
    more: Map<String, Value>,
    retry_after: Option<u64>,
}

macro_rules! problems {
    ($($name:ident = $status:ident $kind:literal $title:literal;)*) => {
        impl Problem {
            $(
                pub(crate) fn $name(detail: impl Into<String>) -> Self {
                    let (status, detail, more) = (StatusCode::$status, detail.into(), Map::new());
                    Self { kind: $kind, title: $title, status, detail, more, retry_after: None }
                }
            )*
        }
    };
}

problems! {
    invalid = BAD_REQUEST "invalid" "The request is invalid";
    unauthorized = UNAUTHORIZED "unauthorized" "A valid token is required";
    forbidden = FORBIDDEN "forbidden" "The token does not allow this";
    foreign = FORBIDDEN "foreign-origin" "Pages of other sites may not send this request";
    missing = NOT_FOUND "not-found" "Not found";
    not_allowed = METHOD_NOT_ALLOWED "method-not-allowed" "The method is not allowed here";
    too_slow = REQUEST_TIMEOUT "too-slow" "The body did not arrive in time";
    conflict = CONFLICT "conflict" "The request conflicts with the current state";
    wrong_revision = CONFLICT "wrong-revision" "The stream is at another revision";
    parked = CONFLICT "parked" "An event could not be folded";
    too_large = PAYLOAD_TOO_LARGE "too-large" "The body is too large";
    unsupported = UNSUPPORTED_MEDIA_TYPE "unsupported-type" "The content type is not supported";
    headers_too_large = REQUEST_HEADER_FIELDS_TOO_LARGE "headers-too-large" "The headers are too large";
    misdirected = MISDIRECTED_REQUEST "misdirected" "The request is for another host";
    key_reused = UNPROCESSABLE_ENTITY "key-reused" "A different request used this key";
    too_many = TOO_MANY_REQUESTS "too-many-requests" "Too many requests";
    full = TOO_MANY_REQUESTS "full" "A limit is reached";
    crowded = SERVICE_UNAVAILABLE "too-many-connections" "The client has too many connections";
    lagging = SERVICE_UNAVAILABLE "lagging" "The event is not folded yet";
    unavailable = SERVICE_UNAVAILABLE "store-unavailable" "The store is unavailable";
    exhausted = SERVICE_UNAVAILABLE "out-of-memory" "The server is short of memory";
    contended = SERVICE_UNAVAILABLE "contended" "Other writers keep changing the same data";
    not_ready = SERVICE_UNAVAILABLE "not-ready" "The server is not ready";
    degraded = SERVICE_UNAVAILABLE "degraded" "The server is degraded";
    damaged = INTERNAL_SERVER_ERROR "damaged" "The stored data is damaged";
    failed = INTERNAL_SERVER_ERROR "failed" "The server failed";
}

impl Problem {
    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// Sets `Retry-After`, in seconds; at least one.
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.to_string())
    }
}

impl From<FilterError> for Problem {
    fn from(error: FilterError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Exhausted> for Problem {
    fn from(exhausted: Exhausted) -> Self {
        Self::exhausted(exhausted.to_string()).retry_after(1)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error.kind() {
            Kind::Invalid => return Self::invalid(detail),
            Kind::Conflict => return Self::conflict(detail),
            _ => tracing::warn!(%error, "request failed"),
        }
        match error.kind() {
            Kind::Full => Self::full(detail).retry_after(5),
            Kind::Contended => Self::contended(detail).retry_after(1),
            Kind::Unavailable | Kind::Unknown | Kind::Stopped => Self::unavailable(detail).retry_after(1),
            Kind::Format => Self::damaged(detail),
            _ => Self::failed(detail),
        }
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        let detail = error.to_string();
        match error {
            AppendError::WrongRevision { actual, .. } => {
                Self::wrong_revision(detail).with("revision", actual.0)
            }
            AppendError::IdTaken { stored, .. } | AppendError::PartlyThere { stored, .. } => {
                Self::conflict(detail).with("stored", stored.to_string())
            }
            AppendError::Store(error) => error.into(),
            _ => Self::invalid(detail),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::Lagging { behind, .. } => Self::lagging(detail).with("behind", behind).retry_after(1),
            ReadError::Parked { parked, .. } => Self::parked(detail).with("parked", json!(parked)),
            ReadError::Store(error) => error.into(),
            _ => Self::invalid(detail),
        }
    }
}

impl Problem {
    /// Returns the body of the response.
    pub(crate) fn text(&self) -> String {
        let mut body = self.more.clone();
        body.insert("type".to_owned(), format!("urn:leftfold:problem:{}", self.kind).into());
        body.insert("title".to_owned(), self.title.into());
        body.insert("status".to_owned(), self.status.as_u16().into());
        body.insert("detail".to_owned(), self.detail.as_str().into());
        Value::Object(body).to_string()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.text()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_not_taken_for_a_store_that_is_gone() {
        let problem = |kind| Problem::from(Error::new(kind, "could not append"));
        let contended = problem(Kind::Contended);
        assert_eq!((contended.kind, contended.status.as_u16()), ("contended", 503));
        assert_ne!(contended.title, problem(Kind::Unavailable).title);
        assert_eq!(contended.retry_after, Some(1));
    }
}
