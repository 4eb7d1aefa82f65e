//! The log: all events after a place in it, at once, as they come, or as a stream.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse as _, sse};
use futures_util::stream;
use leftfold::log::Limit;
use leftfold::{Event, Lane, Mark, Partition, Position};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::extract::{Params, wait};
use super::streams::{Page, Shown, page};
use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/log",
            "readLog",
            "Events after a place in the log; as a stream, if text/event-stream is accepted",
            read::<S>,
        )
        .scope(Scope::Read)
        .query(
            "after",
            "The place, as an answer named it; the beginning if not said, the end if `end`",
            "string",
        )
        .query("limit", "The most events; 100 if not said, at most 1000", "integer")
        .query("wait", "How long to wait where there are none yet, such as 30s", "string")
        .header("Last-Event-ID", "The place to go on from, for a stream"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default, deserialize_with = "wait")]
    wait: Option<Duration>,
}

/// A place in the log: the position in each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Vec<u64>);

impl Place {
    /// The place that somebody names.
    pub(super) async fn named<S: Backend>(text: Option<&str>, shared: &Shared<S>) -> Result<Self, Problem> {
        let store = shared.app.store();
        let partitions = usize::from(store.partitions());
        match text {
            None => Ok(Self(vec![0; partitions])),
            Some("end") => {
                let heads = store.heads().await?;
                Ok(Self(
                    (0..store.partitions()).map(|partition| heads.position(Partition(partition)).0).collect(),
                ))
            }
            Some(text) => {
                let positions: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
                match positions {
                    Ok(positions) if positions.len() == partitions => Ok(Self(positions)),
                    _ => Err(Problem::invalid(format!(
                        "{text:?} is no place in this log; use one that it answered with"
                    ))),
                }
            }
        }
    }

    /// The next events, and whether there are more at once.
    pub(super) async fn read<S: Backend>(
        &mut self,
        shared: &Shared<S>,
        most: usize,
    ) -> Result<(Vec<Event>, bool), Problem> {
        let (mut events, mut more) = (Vec::new(), false);
        for (partition, at) in (0..).zip(&mut self.0) {
            let limit = Limit { events: most - events.len(), ..Limit::default() };
            if limit.events == 0 {
                more = true;
                break;
            }
            let page = shared.app.store().read(Partition(partition), Position(*at), limit).await?;
            *at = page.through.0;
            more |= page.more;
            events.extend(page.events);
        }
        Ok((events, more))
    }

    /// The same as a mark.
    pub(super) fn mark(&self) -> Mark {
        (0..)
            .zip(&self.0)
            .map(|(partition, position)| (Lane::from(Partition(partition)), *position))
            .collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let positions: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&positions.join("-"))
    }
}

async fn read<S: Backend>(
    State(shared): State<Shared<S>>,
    Params(params): Params<Read>,
    headers: HeaderMap,
) -> Answer {
    let most = page(params.limit)?;
    if wants_stream(&headers) {
        let after = last_event_id(&headers).or(params.after);
        let place = Place::named(after.as_deref(), &shared).await?;
        return Ok(follow(shared, place, most));
    }
    let mut place = Place::named(params.after.as_deref(), &shared).await?;
    let (mut events, mut more) = place.read(&shared, most).await?;
    if events.is_empty()
        && let Some(wait) = params.wait
        && timeout(wait, shared.app.store().grown(&place.mark())).await.is_ok()
    {
        (events, more) = place.read(&shared, most).await?;
    }
    let events = events.iter().map(Shown::from).collect();
    json_of(&Page { events, after: Some(place.to_string()), more: Some(more) })
}

pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accepts| accepts.as_bytes().starts_with(b"text/event-stream"))
}

pub(super) fn last_event_id(headers: &HeaderMap) -> Option<String> {
    headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned)
}

/// The events as they come, until the client goes, the server stops, or the store fails: then the client comes again, and goes on where it was.
fn follow<S: Backend>(shared: Shared<S>, place: Place, most: usize) -> axum::response::Response {
    let events = stream::unfold((shared, place), move |(shared, mut place)| async move {
        loop {
            let before = place.clone();
            let Ok((events, _)) = place.read(&shared, most).await else { return None };
            if !events.is_empty() {
                return Some((told(&events, &before), (shared, place)));
            }
            let mark = place.mark();
            tokio::select! {
                grown = shared.app.store().grown(&mark) => grown.ok()?,
                () = shared.stopping() => return None,
            }
        }
    });
    let events = futures_util::StreamExt::flat_map(events, stream::iter);
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// A message that names the place after it.
pub(super) fn message(place: &Place, kind: &str, value: &impl Serialize) -> sse::Event {
    // In JSON a carriage return is a space, which must not be in a message.
    let data = serde_json::to_string(value).unwrap_or_default().replace('\r', " ");
    sse::Event::default().id(place.to_string()).event(kind).data(data)
}

/// One message for each event. Each names the place after it.
fn told(events: &[Event], before: &Place) -> Vec<Result<sse::Event, Infallible>> {
    let mut place = before.clone();
    let mut told = Vec::with_capacity(events.len());
    for event in events {
        if let Some(at) = place.0.get_mut(usize::from(event.partition.0)) {
            *at = event.position.0;
        }
        told.push(Ok(message(&place, event.kind.as_str(), &Shown::from(event))));
    }
    told
}
