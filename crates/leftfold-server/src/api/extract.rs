//! Strict extractors: a request that can't be understood is refused, and the error names the
//! expectation.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::Bytes;
use jiff::SignedDuration;
use leftfold::Collection;
use leftfold::budget::Share;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::problem::Problem;
use crate::{Backend, Shared, strict};

/// The parameters of the path.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(error) => Err(Problem::invalid(format!("the path: {}", error.body_text()))),
        }
    }
}

/// Returns the collection with this name, if it exists.
pub(super) fn known<S: Backend>(shared: &Shared<S>, name: &str) -> Result<Collection, Problem> {
    let found = shared.app.projections().find(|collection| collection.as_str() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<_> = shared.app.projections().map(Collection::as_str).collect();
        Problem::missing(format!(
            "collection {name:?} does not exist; the collections are {}",
            names.join(", ")
        ))
    })
}

/// The parameters of the query.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(Problem::invalid(format!("the query: {}", error.body_text()))),
        }
    }
}

/// The body: JSON, if there is one. It is charged to the memory budget as long as this lives.
pub(super) struct Content(
    pub(super) Bytes,
    #[expect(dead_code, reason = "its drop gives the memory back")] Share,
);

impl<S: Backend> FromRequest<Shared<S>> for Content {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Shared<S>) -> Result<Self, Problem> {
        // Web pages can send other types without a preflight request.
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_json = kind
            .is_none_or(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"));
        if !is_json {
            return Err(Problem::unsupported("send application/json"));
        }
        let (content, share) = strict::read(request.into_body(), shared.limits.body, &shared.budget).await?;
        if !content.is_empty() {
            strict::check(&content)?;
        }
        Ok(Self(content, share))
    }
}

impl Content {
    /// Deserializes the body from JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.0).map_err(|error| Problem::invalid(format!("the body: {error}")))
    }

    /// Deserializes the body from JSON; an empty body is the default.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.0.is_empty() { Ok(T::default()) } else { self.json() }
    }
}

/// The maximum time that a request may wait.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);

/// Parses a duration such as `5s` or `500ms`, at most a minute.
pub(super) fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = || {
        serde::de::Error::custom(format!(
            "expected a duration such as 5s or 500ms, at most 60s, not {text:?}"
        ))
    };
    let wait = text.parse::<SignedDuration>().map_err(|_| wrong())?;
    let wait = Duration::try_from(wait).map_err(|_| wrong())?;
    if wait > MAX_WAIT { Err(wrong()) } else { Ok(Some(wait)) }
}
