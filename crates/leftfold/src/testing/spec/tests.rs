use std::panic::{AssertUnwindSafe, catch_unwind};

use insta::assert_snapshot;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Spec, spec};
use crate::event::{Event, NewEvent, Position, Revision};
use crate::fold::{DocumentIds, Error, Projection, Route};
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
            Moved { from, to } => DocumentIds::many([from, to]),
            _ => Ok(DocumentIds::stream(event)),
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

/// A projection like [`Balances`], with the account's stream as its document.
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
    let documents = spec.documents();
    assert_eq!(documents.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(documents["a"].amount, 2);
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
    balances: document a should not exist, but does

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
    assert_snapshot!(message(|| spec(Balances).given("a", [5])), @r#"invalid event "": expected an enum variant or a struct; its name becomes the type"#);
    assert_snapshot!(message(|| spec(Balances).given("", [Closed])), @r#"invalid stream id "": expected 1 to 255 bytes of text without control characters; it is empty"#);
    assert_snapshot!(message(|| spec(Balances).at("yesterday")), @"yesterday is no time such as 2026-03-01T09:30:00Z: failed to parse four digit integer as year: invalid digit, expected 0-9 but got y");
}

/// A field that can be written but not read: tests that keep documents in memory would miss it.
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

        fn fold(&self, balance: Option<Balance>, event: &Event<Account>) -> Result<Option<Balance>, Error> {
            Balances.fold(balance, event)
        }
    }

    spec(Lifted).given("a", [Unknown]).then("a", balance(4));
}

mod chaos {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A projection with the fold that a test gives it.
    struct Made<D>(fn(Option<D>, &Event<Account>) -> Option<D>);

    impl<D: Serialize + serde::de::DeserializeOwned + Send + 'static> Projection for Made<D> {
        type Event = Account;
        type Document = D;

        fn name(&self) -> &'static str {
            "made"
        }

        fn fold(&self, document: Option<D>, event: &Event<Account>) -> Result<Option<D>, Error> {
            Ok((self.0)(document, event))
        }
    }

    fn events<P: Projection>(spec: Spec<P>) -> Spec<P> {
        let many = || (1..7).map(|amount| Deposited { amount });
        spec.given("a", many()).given("b", many()).given("a", many()).given("b", [Closed])
    }

    #[test]
    fn a_pure_fold_holds_with_failures_deletes_and_streams_set_aside() {
        let broken = NewEvent::new("deposited", Json::stored(r#"{"amount":"much"}"#)).unwrap();
        events(spec(Balances)).holds_under_chaos();
        events(spec(Statements)).given("b", [Deposited { amount: 1 }]).holds_under_chaos();
        events(spec(Balances))
            .given_events("c", [broken.clone()])
            .given("c", [Deposited { amount: 1 }])
            .given("a", [Withdrawn { amount: 999 }, Deposited { amount: 1 }])
            .given("d", [Moved { from: "a".into(), to: "d".into() }])
            .holds_under_chaos();
        events(spec(Statements)).given_events("b", [broken]).given("b", [Closed]).holds_under_chaos();
    }

    #[test]
    fn a_fold_that_remembers_is_caught() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let said = message(|| {
            events(spec(Made::<u64>(|_, _| Some(CALLS.fetch_add(1, Ordering::SeqCst))))).holds_under_chaos()
        });
        assert!(said.contains("made: the collection, given in batches of 1, is not as expected"), "{said}");
    }

    #[test]
    fn a_document_that_storing_changes_is_caught() {
        #[derive(Serialize, Deserialize)]
        struct Forgetful {
            #[serde(skip)]
            hidden: u64,
            shown: u64,
        }
        let said = message(|| {
            events(spec(Made::<Forgetful>(|before, _| {
                let hidden = before.map_or(0, |before| before.hidden) + 1;
                Some(Forgetful { hidden, shown: hidden })
            })))
            .holds_under_chaos()
        });
        assert!(said.contains("made: the collection, given in batches of"), "{said}");
    }

    #[test]
    fn a_fold_that_fails_only_now_and_then_is_caught() {
        struct Moody(AtomicU64);
        impl Projection for Moody {
            type Event = Account;
            type Document = u64;

            fn name(&self) -> &'static str {
                "moody"
            }

            fn fold(&self, _: Option<u64>, event: &Event<Account>) -> Result<Option<u64>, Error> {
                if self.0.fetch_add(1, Ordering::SeqCst) == 25 {
                    return Err("not today".into());
                }
                Ok(Some(event.revision.0))
            }
        }
        let said = message(|| events(spec(Moody(AtomicU64::new(0)))).holds_under_chaos());
        assert!(said.contains("moody"), "{said}");
    }
}
