//! The log: all events after a place in it, as a page, by long polling, or as an event stream.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use leftfold::Event;
use leftfold::log::Limit;
use serde::Deserialize;
use tokio::time::timeout;

use super::extract::{Params, wait};
use super::place::Place;
use super::sse::{self, Feed, FeedStep, last_event_id};
use super::streams::{Page, Shown};
use super::{Answer, Operation, PAGE_BYTES, json_of, page_limit};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/log",
            "readLog",
            "Read the log from a place on; as an event stream with `Accept: text/event-stream`",
            read::<S>,
        )
        .scope(Scope::Read)
        .query(
            "after",
            "The `after` of a previous response, or `end`; the beginning of the log by default",
            "string",
        )
        .query("limit", "The maximum number of events: 100 by default, at most 1000", "integer")
        .query("wait", "The maximum time to wait for the first event, such as 30s; at most 60s", "string")
        .header("Last-Event-ID", "The id of the last message of an event stream; resumes after it"),
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

async fn read<S: Backend>(
    State(shared): State<Shared<S>>,
    Params(params): Params<Read>,
    headers: HeaderMap,
) -> Answer {
    let most = page_limit(params.limit)?;
    if sse::is_wanted(&headers) {
        let after = last_event_id(&headers).or(params.after);
        let place = Place::named(after.as_deref(), &shared).await?;
        let first = place.to_string();
        let (sent, end) = (place.clone(), place);
        return sse::respond(shared.clone(), first, Following { shared, sent, end, left: VecDeque::new() });
    }
    let limit = Limit { events: most, bytes: PAGE_BYTES };
    let mut place = Place::named(params.after.as_deref(), &shared).await?;
    let mut turn = shared.turn().await;
    let (mut events, mut more) = place.read(&shared, limit).await?;
    if events.is_empty()
        && let Some(wait) = params.wait
    {
        drop(turn.take());
        let mark = place.mark();
        let grown = tokio::select! {
            grown = timeout(wait, shared.app.store().grown(&mark)) => grown.is_ok(),
            // The client sends the request again, if its token still allows it.
            () = shared.stopping() => false,
        };
        if grown {
            turn = shared.turn().await;
            (events, more) = place.read(&shared, limit).await?;
        }
    }
    let _turn = turn;
    let events = events.iter().map(Shown::from).collect();
    json_of(&Page { events, after: Some(place.to_string()), more: Some(more) })
}

/// A feed of the log's events.
struct Following<S: Backend> {
    shared: Shared<S>,
    /// The place after the last event that was sent.
    sent: Place,
    /// The place after the last page that was read.
    end: Place,
    left: VecDeque<Event>,
}

impl<S: Backend> Feed for Following<S> {
    async fn next(&mut self) -> Result<FeedStep, Problem> {
        loop {
            if let Some(event) = self.left.pop_front() {
                self.sent.pass(event.partition, event.position);
                return FeedStep::event(self.sent.to_string(), &event);
            }
            self.sent.clone_from(&self.end);
            let (events, _) = self.end.read(&self.shared, sse::PAGE).await?;
            if events.is_empty() {
                self.shared.app.store().grown(&self.end.mark()).await?;
            }
            self.left = events.into();
        }
    }
}
