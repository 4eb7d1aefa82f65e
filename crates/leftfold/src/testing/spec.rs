//! Specifications of projections: given these events, then these documents.
#![expect(clippy::missing_panics_doc, reason = "checks in tests panic where they fail")]
#![expect(clippy::return_self_not_must_use, reason = "a check may be the last thing one says")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::naive::Naive;
use crate::event::{Event, EventId, NewEvent, Partition, Position, Revision, StreamId};
use crate::fold::Projection;

/// Begins the specification of a projection.
///
/// ```
/// # use leftfold::{Event, Projection, fold};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # enum Counted { Incremented { by: u64 }, Removed }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Total { sum: u64 }
/// # struct Totals;
/// # impl Projection for Totals {
/// #     type Event = Counted;
/// #     type Document = Total;
/// #     fn name(&self) -> &str { "totals" }
/// #     fn fold(&self, total: Option<Total>, event: &Event<Counted>) -> Result<Option<Total>, fold::Error> {
/// #         let sum = total.map_or(0, |total| total.sum);
/// #         match event.data {
/// #             Counted::Incremented { by: 0 } => Err("by nothing".into()),
/// #             Counted::Incremented { by } => Ok(Some(Total { sum: sum + by })),
/// #             Counted::Removed => Ok(None),
/// #         }
/// #     }
/// # }
/// use leftfold::testing::spec;
///
/// spec(Totals)
///     .given("a", [Counted::Incremented { by: 2 }, Counted::Incremented { by: 3 }])
///     .given("b", [Counted::Incremented { by: 1 }, Counted::Removed])
///     .then("a", Total { sum: 5 })
///     .then_nothing("b")
///     .given("a", [Counted::Incremented { by: 0 }])
///     .then_fails("by nothing");
/// ```
pub fn spec<P: Projection>(projection: P) -> Spec<P> {
    Spec {
        projection,
        events: Vec::new(),
        time: Timestamp::constant(1_767_225_600, 0), // 2026-01-01
        failures: BTreeSet::new(),
    }
}

/// A projection with the events it is given, in the order of the log.
///
/// Events take the way they take in production: they are encoded, lifted by `upcast` and decoded, types the
/// projection does not know are ignored, and documents are kept as JSON. An event that fails parks its document
/// (or its stream, where it can't be routed): that stays as it was, and later events leave it alone.
///
/// Every check panics with what was expected, what there is, and the events that led to it.
#[derive(Debug)]
pub struct Spec<P> {
    projection: P,
    events: Vec<Event>,
    time: Timestamp,
    /// The events that were said to fail.
    failures: BTreeSet<Position>,
}

impl<P: Projection> Spec<P> {
    /// The events given from here on happened at this time: a [`Timestamp`], or one as text, such as
    /// `2026-03-01T09:30:00Z`. It is the first moment of 2026 until set.
    #[must_use]
    #[track_caller]
    pub fn at(mut self, time: impl Display) -> Self {
        self.time = match time.to_string().parse() {
            Ok(time) => time,
            Err(error) => panic!("{time} is no time such as 2026-03-01T09:30:00Z: {error}"),
        };
        self
    }

    /// These events of one stream come next in the log.
    #[must_use]
    #[track_caller]
    pub fn given<E: Serialize>(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = E>,
    ) -> Self {
        for event in events {
            match NewEvent::encode(&event) {
                Ok(event) => self.append(stream.as_ref(), event),
                Err(invalid) => panic!("{invalid}"),
            }
        }
        self
    }

    /// Like [`given`](Self::given), for events with an id, a time, metadata or raw data of their own.
    #[must_use]
    #[track_caller]
    pub fn given_events(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Self {
        for event in events {
            self.append(stream.as_ref(), event);
        }
        self
    }

    /// The document is this one: the projection's own type, or whatever serializes to the same JSON.
    #[track_caller]
    pub fn then(self, id: impl AsRef<str>, expected: impl Serialize) -> Self {
        let id = id.as_ref();
        match self.documents().get(id) {
            Some(actual) => self.compare(&format!("document {id}"), &value(&expected), actual),
            None => panic!("{}: there is no document {id}{}", self.projection.name(), self.story()),
        }
        self
    }

    /// There is no such document: it never was, or it was deleted.
    #[track_caller]
    pub fn then_nothing(self, id: impl AsRef<str>) -> Self {
        let id = id.as_ref();
        if let Some(actual) = self.documents().get(id) {
            let name = self.projection.name();
            panic!("{name}: there should be no document {id}, but there is\n\n{actual:#}{}", self.story());
        }
        self
    }

    /// These are all the documents there are.
    #[track_caller]
    pub fn then_only<I: AsRef<str>, D: Serialize>(self, expected: impl IntoIterator<Item = (I, D)>) -> Self {
        let expected: Value =
            expected.into_iter().map(|(id, document)| (id.as_ref().to_owned(), value(&document))).collect();
        let actual: Value = self.documents().into_iter().collect();
        self.compare("the collection", &expected, &actual);
        self
    }

    /// The last event can't be decoded, routed or folded, and the error contains this text.
    #[track_caller]
    pub fn then_fails(mut self, text: &str) -> Self {
        let name = self.projection.name();
        let Some(last) = self.events.last().map(|event| event.position) else {
            panic!("{name}: no event is given that could fail");
        };
        self.failures.insert(last);
        self.documents();
        let failures = self.fold().failures;
        let errors: Vec<_> =
            failures.iter().filter(|(position, _)| *position == last).map(|(_, error)| error).collect();
        let expected = format!("{name}: the last event should fail with {text:?}");
        assert!(!errors.is_empty(), "{expected}, but does not{}", self.story());
        assert!(errors.iter().any(|error| error.contains(text)), "{expected}, but fails with {errors:?}");
        self
    }

    /// The document as it is now, for checks of your own.
    #[track_caller]
    pub fn document(&self, id: impl AsRef<str>) -> Option<P::Document> {
        let document = self.documents().remove(id.as_ref())?;
        Some(serde_json::from_value(document).expect("the fold has read it back already"))
    }

    #[expect(dead_code, reason = "for the checks that feed the same events in other ways")]
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    #[track_caller]
    fn append(&mut self, stream: &str, event: NewEvent) {
        let stream = match StreamId::new(stream) {
            Ok(stream) => stream,
            Err(invalid) => panic!("{invalid}"),
        };
        let position = self.events.len() as u64 + 1;
        let earlier = self.events.iter().filter(|event| event.stream == stream).count() as u64;
        self.events.push(Event {
            id: event.id.unwrap_or_else(|| EventId::stored(&format!("event-{position}"))),
            stream,
            revision: Revision(earlier + 1),
            kind: event.kind,
            time: event.time.unwrap_or(self.time),
            data: event.data,
            metadata: event.metadata,
            partition: Partition(0),
            position: Position(position),
        });
    }

    fn fold(&self) -> Naive {
        Naive::fold(&self.projection, &self.events)
    }

    /// The documents, unless an event failed of which that was not said.
    #[track_caller]
    fn documents(&self) -> BTreeMap<String, Value> {
        let Naive { documents, failures, .. } = self.fold();
        let surprise = failures.iter().find(|(position, _)| !self.failures.contains(position));
        if let Some((position, error)) = surprise {
            panic!("{}: event {position} failed: {error}{}", self.projection.name(), self.story());
        }
        documents.into_iter().map(|(id, body)| (id.to_string(), value(&body))).collect()
    }

    #[track_caller]
    fn compare(&self, what: &str, expected: &Value, actual: &Value) {
        if expected == actual {
            return;
        }
        let (expected, actual) = (format!("{expected:#}\n"), format!("{actual:#}\n"));
        let difference = TextDiff::from_lines(&expected, &actual);
        let difference = difference.unified_diff().context_radius(5).header("expected", "actual").to_string();
        let name = self.projection.name();
        panic!("{name}: {what} is not as expected\n\n{}{}", difference.trim_end(), self.story());
    }

    /// The events that led here, the last ones if they are many.
    fn story(&self) -> String {
        const SHOWN: usize = 30;
        let mut story = "\n\nafter these events:\n".to_owned();
        let earlier = self.events.len().saturating_sub(SHOWN);
        if earlier > 0 {
            let _ = writeln!(story, "  … {earlier} earlier ones");
        }
        for event in &self.events[earlier..] {
            let Event { position, stream, kind, data, .. } = event;
            let _ = writeln!(story, "  {position} {stream} {kind} {data:?}");
        }
        story
    }
}

#[track_caller]
fn value(document: &impl Serialize) -> Value {
    match serde_json::to_value(document) {
        Ok(value) => value,
        Err(error) => panic!("the document does not serialize to JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use insta::assert_snapshot;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::fold::{Error, Ids, Route};
    use crate::json::Json;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Account {
        Deposited { amount: u64 },
        Withdrawn { amount: u64 },
        Moved { from: String, to: String },
        Closed,
    }
    use Account::{Closed, Deposited, Moved, Withdrawn};

    #[derive(Serialize, Deserialize)]
    struct Balance {
        amount: u64,
        day: String,
    }

    struct Balances;

    impl Projection for Balances {
        type Event = Account;
        type Document = Balance;

        fn name(&self) -> &'static str {
            "balances"
        }

        fn route(&self) -> Route<Account> {
            Route::by(|event| match &event.data {
                Moved { from, to } => Ids::many([from, to]),
                _ => Ok(Ids::stream(event)),
            })
        }

        fn fold(&self, balance: Option<Balance>, event: &Event<Account>) -> Result<Option<Balance>, Error> {
            let old = balance.map_or(0, |balance| balance.amount);
            let amount = match &event.data {
                Deposited { amount } => old + amount,
                Withdrawn { amount } => old.checked_sub(*amount).ok_or("more than there is")?,
                Moved { .. } => old,
                Closed => return Ok(None),
            };
            Ok(Some(Balance { amount, day: event.time.strftime("%F").to_string() }))
        }
    }

    /// Like [`Balances`], with the account's stream as its document.
    struct Statements;

    impl Projection for Statements {
        type Event = Account;
        type Document = Balance;

        fn name(&self) -> &'static str {
            "statements"
        }

        fn fold(&self, balance: Option<Balance>, event: &Event<Account>) -> Result<Option<Balance>, Error> {
            Balances.fold(balance, event)
        }
    }

    #[derive(Serialize)]
    #[serde(rename = "deposited")]
    struct WrongDeposit {
        amount: &'static str,
    }

    #[derive(Serialize)]
    #[serde(rename = "renamed")]
    struct Unknown;

    fn balance(amount: u64) -> Balance {
        Balance { amount, day: "2026-01-01".into() }
    }

    fn message<T>(check: impl FnOnce() -> T) -> String {
        let panic = catch_unwind(AssertUnwindSafe(check)).err().expect("the check should fail");
        *panic.downcast::<String>().expect("a message with arguments")
    }

    #[test]
    fn folds_what_is_given_in_its_order() {
        spec(Balances)
            .given("a", [Deposited { amount: 5 }])
            .given("b", [Deposited { amount: 1 }, Closed])
            .given("a", [Withdrawn { amount: 2 }])
            .given("c", [Moved { from: "d".into(), to: "e".into() }])
            .given("c", [Unknown])
            .then("a", balance(3))
            .then("a", json!({ "day": "2026-01-01", "amount": 3 }))
            .then_nothing("b")
            .then_nothing("c")
            .then_only([("a", balance(3)), ("d", balance(0)), ("e", balance(0))])
            .given("b", [Deposited { amount: 7 }])
            .then("b", balance(7));
    }

    #[test]
    fn time_and_everything_else_can_be_set() {
        let raw = NewEvent::new("deposited", Json::parse(r#"{ "amount": 1 }"#).unwrap())
            .unwrap()
            .with_id("mine")
            .unwrap()
            .with_metadata(&json!({ "by": "ann" }))
            .unwrap();
        let spec = spec(Balances)
            .at("2026-03-01T23:59:59Z")
            .given_events("a", [raw.clone(), raw.at(Timestamp::UNIX_EPOCH)])
            .at(Timestamp::constant(1_767_225_600, 0))
            .given("b", [Deposited { amount: 1 }])
            .then("a", Balance { amount: 2, day: "1970-01-01".into() })
            .then("b", balance(1));
        let [first, second, third] = &spec.events[..] else { panic!("three events") };
        assert_eq!((first.id.as_str(), third.id.as_str()), ("mine", "event-3"));
        assert_eq!(first.metadata.as_ref().unwrap().as_str(), r#"{"by":"ann"}"#);
        assert_eq!((second.revision, second.position), (Revision(2), Position(2)));
        assert_eq!((third.revision, third.position), (Revision(1), Position(3)));
        assert_eq!(spec.document("a").unwrap().amount, 2);
        assert!(spec.document("c").is_none());
    }

    #[test]
    fn a_failure_parks_its_document_alone() {
        spec(Balances)
            .given("a", [Deposited { amount: 5 }, Withdrawn { amount: 9 }])
            .then_fails("more than")
            .given("a", [Deposited { amount: 1 }])
            .given("b", [Deposited { amount: 1 }])
            .then("a", balance(5))
            .then("b", balance(1));
    }

    #[test]
    fn what_can_not_be_decoded_parks_the_document_or_the_stream() {
        let to_a = || Moved { from: "a".into(), to: "x".into() };
        spec(Balances)
            .given("a", [WrongDeposit { amount: "two" }])
            .then_fails("can't decode deposited: data.amount")
            .given("a", [Deposited { amount: 1 }])
            .then_only::<&str, ()>([])
            .given("b", [to_a()])
            .then("a", balance(0));
        spec(Balances)
            .given("a", [Moved { from: String::new(), to: "x".into() }])
            .then_fails("invalid document id")
            .given("a", [Deposited { amount: 1 }])
            .then_only::<&str, ()>([]);
        spec(Statements)
            .given("a", [WrongDeposit { amount: "two" }])
            .then_fails("can't decode deposited: data.amount")
            .given("a", [to_a()])
            .then_nothing("a");
    }

    #[test]
    fn a_difference_is_shown_with_the_events() {
        let given = || spec(Balances).given("a", [Deposited { amount: 5 }, Withdrawn { amount: 2 }]);
        assert_snapshot!(message(|| given().then("a", balance(4))), @r#"
        balances: document a is not as expected

        --- expected
        +++ actual
        @@ -1,4 +1,4 @@
         {
        -  "amount": 4,
        +  "amount": 3,
           "day": "2026-01-01"
         }

        after these events:
          1 a deposited {"amount":5}
          2 a withdrawn {"amount":2}
        "#);
        assert_snapshot!(message(|| given().then_only([("b", balance(4))])), @r#"
        balances: the collection is not as expected

        --- expected
        +++ actual
        @@ -1,6 +1,6 @@
         {
        -  "b": {
        -    "amount": 4,
        +  "a": {
        +    "amount": 3,
             "day": "2026-01-01"
           }
         }

        after these events:
          1 a deposited {"amount":5}
          2 a withdrawn {"amount":2}
        "#);
        assert_snapshot!(message(|| given().then_nothing("a")), @r#"
        balances: there should be no document a, but there is

        {
          "amount": 3,
          "day": "2026-01-01"
        }

        after these events:
          1 a deposited {"amount":5}
          2 a withdrawn {"amount":2}
        "#);
        assert_snapshot!(message(|| given().then("b", balance(4))), @r#"
        balances: there is no document b

        after these events:
          1 a deposited {"amount":5}
          2 a withdrawn {"amount":2}
        "#);
    }

    #[test]
    fn failures_are_shown_where_none_was_expected_and_missed_where_one_was() {
        let given = || spec(Balances).given("a", [Withdrawn { amount: 2 }]);
        assert_snapshot!(message(|| given().then("a", balance(4))), @r#"
        balances: event 1 failed: more than there is

        after these events:
          1 a withdrawn {"amount":2}
        "#);
        assert_snapshot!(message(|| given().then_fails("no such account")), @r#"balances: the last event should fail with "no such account", but fails with ["more than there is"]"#);
        let given = || spec(Balances).given("a", [Deposited { amount: 2 }]);
        assert_snapshot!(message(|| given().then_fails("more than")), @r#"
        balances: the last event should fail with "more than", but does not

        after these events:
          1 a deposited {"amount":2}
        "#);
        let given = || spec(Balances).given("a", [Withdrawn { amount: 2 }, Withdrawn { amount: 3 }]);
        assert!(message(|| given().then_fails("more than")).contains("event 1 failed: more than there is"));
        assert_snapshot!(message(|| spec(Balances).then_fails("more than")), @"balances: no event is given that could fail");
    }

    #[test]
    fn what_can_not_be_given_is_named() {
        assert_snapshot!(message(|| spec(Balances).given("a", [5])), @r#"invalid event "": expected an enum variant or a struct, whose name becomes the type"#);
        assert_snapshot!(message(|| spec(Balances).given("", [Closed])), @r#"invalid stream id "": expected 1 to 255 bytes of text without control characters; it is empty"#);
        assert_snapshot!(message(|| spec(Balances).at("yesterday")), @"yesterday is no time such as 2026-03-01T09:30:00Z: failed to parse four digit integer as year: invalid digit, expected 0-9 but got y");
    }

    /// A field that is written but can't be read: tests that keep documents in memory would not see it.
    #[test]
    fn documents_must_survive_json() {
        #[derive(Serialize, Deserialize)]
        struct OneWay {
            #[serde(rename(serialize = "written"))]
            read: u8,
        }

        struct Broken;
        impl Projection for Broken {
            type Event = Account;
            type Document = OneWay;

            fn name(&self) -> &'static str {
                "broken"
            }

            fn fold(&self, _: Option<OneWay>, _: &Event<Account>) -> Result<Option<OneWay>, Error> {
                Ok(Some(OneWay { read: 1 }))
            }
        }

        spec(Broken).given("a", [Closed]).then_fails("missing field `read`").then_nothing("a");
    }

    #[test]
    fn events_of_an_old_shape_are_lifted() {
        struct Lifted;
        impl Projection for Lifted {
            type Event = Account;
            type Document = Balance;

            fn name(&self) -> &'static str {
                "lifted"
            }

            fn upcast(&self, mut event: Event) -> Event {
                if event.kind.as_str() == "renamed" {
                    event.kind = crate::EventKind::stored("deposited");
                    event.data = Json::stored(r#"{"amount":4}"#);
                }
                event
            }

            fn fold(
                &self,
                balance: Option<Balance>,
                event: &Event<Account>,
            ) -> Result<Option<Balance>, Error> {
                Balances.fold(balance, event)
            }
        }

        spec(Lifted).given("a", [Unknown]).then("a", balance(4));
    }
}
