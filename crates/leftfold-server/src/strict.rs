//! Reads bodies within limits, so that later readers are safe: a maximum size, a maximum depth of
//! JSON, and no duplicate keys. Of duplicate keys, one reader would take the first value and
//! another the last.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use leftfold::Json;
use leftfold::budget::{Budget, Share, Use};
use serde::de::IgnoredAny;

use crate::memory::UNREFUSED;
use crate::problem::Problem;

/// Reads a whole body into one buffer. The share charges the memory budget for the body.
pub(crate) async fn read(body: Body, most: usize, budget: &Budget) -> Result<(Bytes, Share), Problem> {
    let mut share = budget.take(Use::Request, UNREFUSED);
    let mut body = Limited::new(body, most);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return Problem::too_large(format!("the body is larger than {most} bytes"));
            }
            Problem::invalid(format!("reading the body: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + data.len();
        if whole.is_empty() && body.is_end_stream() {
            share.resize((length * COPIES).max(UNREFUSED))?;
            return Ok((data, share));
        }
        // Copy the frame: it can be one byte that keeps a whole buffer of the connection alive.
        if length > whole.capacity() {
            let capacity = length.next_power_of_two();
            share.resize((capacity * COPIES).max(UNREFUSED))?;
            whole.reserve(capacity - whole.len());
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.freeze(), share))
}

/// The memory of a request as a multiple of its body: the body, its parsed events, and the store's
/// copy of them.
const COPIES: usize = 3;

/// Checks that a body is JSON that the log accepts, by the same rules.
pub(crate) fn check(json: &[u8]) -> Result<(), Problem> {
    Json::check_strict(json).map_err(|fault| Problem::invalid(format!("the body: {fault}")))
}

/// Checks the body of posted events. Returns whether all of it was checked.
pub(crate) fn check_events(headers: &HeaderMap, body: &[u8]) -> Result<bool, Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-ndjson" | "application/jsonl" => {
            let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let mut all = true;
            for line in lines.filter(|line| !line.is_empty()) {
                match check(line) {
                    Ok(()) => {}
                    // A line that is not JSON at all is kept as a rejected message of its own.
                    Err(_) if serde_json::from_slice::<IgnoredAny>(line).is_err() => all = false,
                    Err(problem) => return Err(problem),
                }
            }
            Ok(all)
        }
        kind if kind.ends_with("json") && !body.is_empty() => check(body).map(|()| true),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn json_is_bounded_and_says_one_thing() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for good in [&nested(127), "{}", "[1,-1,1.5,null,true,\"a\",{\"a\":{\"a\":[{\"b\":1},{\"b\":1}]}}]"] {
            assert!(check(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in
            [&nested(128), "[NaN]", "[1e999]", "{\"a\":1,\"a\":1}", "[{\"a\":1,\"\\u0061\":2}]", "", "1 2"]
        {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn events_are_checked_by_their_type() {
        let checked = |kind: &'static str, body: &str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            check_events(&headers, body.as_bytes()).ok()
        };
        let twice = "{\"a\":1,\"a\":1}";
        for kind in
            ["application/json", "Application/CloudEvents+JSON; charset=utf-8", "application/x-ndjson"]
        {
            assert_eq!(checked(kind, twice), None, "{kind}");
            assert_eq!(checked(kind, "{}"), Some(true), "{kind}");
        }
        assert_eq!(checked("text/plain", twice), Some(false), "it is unchecked");
        assert_eq!(
            checked("application/x-ndjson", "{\"a\":1}\n\n{\"a\":1}\n{no JSON\n"),
            Some(false),
            "one line could not be checked"
        );
        assert_eq!(checked("application/jsonl", &format!("{{}}\n{twice}")), None);
    }
}
