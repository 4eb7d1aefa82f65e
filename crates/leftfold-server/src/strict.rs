//! Bodies, read within bounds: none is larger, or JSON nested deeper, than is good for those who come after, and no key stands twice beside itself,
//! as one reader would take the first and another the last.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use leftfold::budget::{Budget, Share, Use};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::memory::UNREFUSED;
use crate::problem::Problem;

/// Reads a body to its end, into one buffer. The share charges the memory budget for what the body takes.
pub(crate) async fn read(body: Body, most: usize, budget: &Budget) -> Result<(Bytes, Share), Problem> {
    let mut share = budget.take(Use::Request, UNREFUSED);
    let mut body = Limited::new(body, most);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return Problem::too_large(format!("at most {most} bytes are taken in one body"));
            }
            Problem::invalid(format!("reading the body: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + data.len();
        if whole.is_empty() && body.is_end_stream() {
            share.resize((length * COPIES).max(UNREFUSED))?;
            return Ok((data, share));
        }
        // A frame can be a byte that keeps a whole buffer of the connection alive: so it is copied.
        if length > whole.capacity() {
            let capacity = length.next_power_of_two();
            share.resize((capacity * COPIES).max(UNREFUSED))?;
            whole.reserve(capacity - whole.len());
        }
        whole.extend_from_slice(&data);
    }
    Ok((whole.freeze(), share))
}

/// A request takes this many times its body: the body itself, its parsed events, and the store's copy of them.
const COPIES: usize = 3;

/// Whether a JSON text may be taken. It may be nested 127 deep.
pub(crate) fn check(json: &[u8]) -> Result<(), Problem> {
    match serde_json::from_slice::<Strict>(json) {
        Ok(Strict) => Ok(()),
        Err(error) => Err(Problem::invalid(format!("the body: {error}"))),
    }
}

/// Looks over what is posted as events, before somebody else reads it. The most bytes are part of the state.
pub(crate) async fn events(
    State((most, budget)): State<(usize, Budget)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let looked_over = async {
        let (body, share) = read(body, most, &budget).await?;
        look_over(&parts.headers, &body)?;
        Ok::<_, Problem>((body, share))
    };
    match looked_over.await {
        Ok((body, _share)) => next.run(Request::from_parts(parts, body.into())).await,
        Err(problem) => problem.into_response(),
    }
}

fn look_over(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-ndjson" | "application/jsonl" => {
            // A line that is no JSON at all is kept as rejected, by itself.
            let lines = body.split(|byte| *byte == b'\n');
            let mut lines = lines.filter(|line| serde_json::from_slice::<IgnoredAny>(line).is_ok());
            lines.try_for_each(check)
        }
        kind if kind.ends_with("json") && !body.is_empty() => check(body),
        _ => Ok(()),
    }
}

/// A JSON value of which nothing is kept.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        let mut keys = Keys::default();
        while let Some(Key(key)) = fields.next_key()? {
            if keys.contains(&key) {
                return Err(Error::custom(format_args!("the key {key:?} is there twice")));
            }
            keys.insert(key);
            fields.next_value::<Self>()?;
        }
        Ok(self)
    }
}

/// The keys of an object. The first ones, which are all there are as a rule, are found sooner by comparing than by hashing.
#[derive(Default)]
struct Keys<'k> {
    first: Vec<Cow<'k, str>>,
    others: HashSet<Cow<'k, str>>,
}

impl<'k> Keys<'k> {
    const FIRST: usize = 16;

    fn contains(&self, key: &str) -> bool {
        self.first.iter().any(|one| one == key) || (!self.others.is_empty() && self.others.contains(key))
    }

    fn insert(&mut self, key: Cow<'k, str>) {
        if self.first.len() < Self::FIRST {
            self.first.push(key);
        } else {
            self.others.insert(key);
        }
    }
}

/// Borrowed, unless something is escaped in it.
struct Key<'k>(Cow<'k, str>);

impl<'de: 'k, 'k> Deserialize<'de> for Key<'k> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;
        impl<'de> Visitor<'de> for Named {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Named)
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
    fn a_key_is_found_again_wherever_it_stands() {
        let object = |last: usize| {
            let keys = (0..40).chain([last]).map(|key| format!("\"{key}\":0"));
            format!("{{{}}}", keys.collect::<Vec<_>>().join(","))
        };
        assert!(check(object(40).as_bytes()).is_ok());
        for twice in [0, 15, 16, 39] {
            assert!(check(object(twice).as_bytes()).is_err(), "{twice}");
        }
    }

    #[test]
    fn events_are_looked_over_by_their_type() {
        let looked_over = |kind: &'static str, body: &str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            look_over(&headers, body.as_bytes()).is_ok()
        };
        let twice = "{\"a\":1,\"a\":1}";
        for kind in
            ["application/json", "Application/CloudEvents+JSON; charset=utf-8", "application/x-ndjson"]
        {
            assert!(!looked_over(kind, twice), "{kind}");
        }
        assert!(looked_over("text/plain", twice));
        assert!(looked_over("application/x-ndjson", "{\"a\":1}\n{\"a\":1}\n{no JSON\n"));
        assert!(!looked_over("application/jsonl", &format!("{{}}\n{twice}")));
    }
}
