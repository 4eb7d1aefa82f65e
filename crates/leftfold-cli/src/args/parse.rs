//! Parsers of argument values.

use std::time::Duration;

use leftfold::inspect::AsOf;
use leftfold::react::{Filter, FilterError};
use leftfold::{Invalid, Revision, StreamId};
use leftfold_sources::Mapping;

use super::documents::AwaitedEvent;

pub(super) fn filter(text: &str) -> Result<Box<Filter>, String> {
    text.parse().map(Box::new).map_err(|error: FilterError| error.to_string())
}

pub(super) fn mapping(text: &str) -> Result<Box<Mapping>, String> {
    serde_json::from_str(text).map(Box::new).map_err(|error| format!("expected a mapping as JSON: {error}"))
}

pub(super) fn awaited_event(text: &str) -> Result<AwaitedEvent, String> {
    if let Some((stream, revision)) = text.rsplit_once('@')
        && let (Ok(stream), Ok(revision)) = (StreamId::new(stream), revision.parse())
    {
        return Ok(AwaitedEvent::At(stream, Revision(revision)));
    }
    text.parse()
        .map(AwaitedEvent::Bookmark)
        .map_err(|error: Invalid| format!("{error}; or expected stream@revision"))
}

pub(super) fn as_of(text: &str) -> Result<AsOf, String> {
    text.parse().map_err(|error: Invalid| error.to_string())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, such as 0.5".to_owned())
}
