//! Responses of operations.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use super::Answer;
use crate::problem::Problem;

/// Responds with JSON.
pub(super) fn json_of(value: &impl Serialize) -> Answer {
    let mut body = serde_json::to_string(value).map_err(|error| Problem::failed(error.to_string()))?;
    // The memory budget counts only the length.
    body.shrink_to_fit();
    Ok(with_type(body, "application/json"))
}

/// Responds with a body of a content type.
pub(super) fn with_type(body: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Sets the status of a response.
pub(super) fn with_status(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    response
}
