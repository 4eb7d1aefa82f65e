//! The log: all events after a place in it, as a page, by long polling, or as an event stream.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use leftfold::log::Limit;
use leftfold::{Event, Lane, Mark, Partition, Position};
use serde::Deserialize;
use tokio::time::timeout;

use super::extract::{Params, wait};
use super::sse::{self, Feed, Told, last_event_id};
use super::streams::{Page, Shown, page};
use super::{Answer, Operation, PAGE_BYTES, json_of};
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

/// A place in the log: the position in each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Vec<u64>);

impl Place {
    /// Parses the place that a client sent.
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

    /// Returns the next events, and whether more are available at once.
    pub(super) async fn read<S: Backend>(
        &mut self,
        shared: &Shared<S>,
        limit: Limit,
    ) -> Result<(Vec<Event>, bool), Problem> {
        let (mut events, mut more, mut left) = (Vec::new(), false, limit);
        for (partition, at) in (0..).zip(&mut self.0) {
            if left.events == 0 || left.bytes == 0 {
                more = true;
                break;
            }
            let page = shared.app.store().read(Partition(partition), Position(*at), left).await?;
            *at = page.through.0;
            more |= page.more;
            left.events -= page.events.len().min(left.events);
            left.bytes = left.bytes.saturating_sub(page.events.iter().map(bytes).sum());
            events.extend(page.events);
        }
        Ok((events, more))
    }

    /// Advances to a position of a partition.
    pub(super) fn pass(&mut self, partition: Partition, position: Position) {
        if let Some(at) = self.0.get_mut(usize::from(partition.0)) {
            *at = position.0;
        }
    }

    /// Returns the place as text. `part` is a partition, and the number of documents of its next
    /// event that were sent already.
    pub(super) fn with_part(&self, part: Option<(usize, usize)>) -> String {
        let positions = self.0.iter().enumerate().map(|(partition, position)| match part {
            Some((one, documents)) if one == partition => format!("{position}+{documents}"),
            _ => position.to_string(),
        });
        positions.collect::<Vec<_>>().join("-")
    }

    /// Returns the place as a mark.
    pub(super) fn mark(&self) -> Mark {
        (0..)
            .zip(&self.0)
            .map(|(partition, position)| (Lane::from(Partition(partition)), *position))
            .collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_part(None))
    }
}

/// Returns the size of an event as limits count it.
fn bytes(event: &Event) -> usize {
    event.data.as_str().len() + event.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len())
}

async fn read<S: Backend>(
    State(shared): State<Shared<S>>,
    Params(params): Params<Read>,
    headers: HeaderMap,
) -> Answer {
    let most = page(params.limit)?;
    if sse::is_wanted(&headers) {
        let after = last_event_id(&headers).or(params.after);
        let place = Place::named(after.as_deref(), &shared).await?;
        let first = place.to_string();
        let (told, end) = (place.clone(), place);
        return sse::respond(shared.clone(), first, Following { shared, told, end, left: VecDeque::new() });
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
    told: Place,
    /// The place after the last page that was read.
    end: Place,
    left: VecDeque<Event>,
}

impl<S: Backend> Feed for Following<S> {
    async fn next(&mut self) -> Result<Told, Problem> {
        loop {
            if let Some(event) = self.left.pop_front() {
                self.told.pass(event.partition, event.position);
                return Told::event(self.told.to_string(), &event);
            }
            self.told.clone_from(&self.end);
            let (events, _) = self.end.read(&self.shared, sse::PAGE).await?;
            if events.is_empty() {
                self.shared.app.store().grown(&self.end.mark()).await?;
            }
            self.left = events.into();
        }
    }
}
