//! Documents that are written without events.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::content::{
    ContentGuard, ContentWrite, Contents, Counted, Operated, Operation, OperationId, REMEMBERED, Stored,
    Version, Versioned, WriteAnswer, Wrote,
};
use crate::error::Kind;
use crate::event::DocumentId;
use crate::json::Json;
use crate::react::{Context, ExternalCollection, Reaction, ReactionStore, Reactor};
use crate::store::Memory;
use crate::testing::conformance::{json, soon};

const THINGS: &str = "things";

fn things() -> ExternalCollection {
    ExternalCollection::new(THINGS).unwrap()
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn guard(text: &str) -> ContentGuard {
    ContentGuard::stored(text.as_bytes())
}

fn write(name: &str, expected: Option<&str>, to: Option<(&str, &str)>) -> ContentWrite {
    let to = to.map(|(version, body)| (guard(version), json(body)));
    ContentWrite { id: id(name), expected: expected.map(guard), to }
}

fn operation(number: u64) -> Operation {
    Operation::new(OperationId::new(number).unwrap())
}

async fn stored(store: &impl Contents, name: &str) -> Option<Stored> {
    store.contents(&things(), vec![id(name)]).await.unwrap().pop()
}

/// Returns the text that a guard was created from.
fn shown(guard: &ContentGuard) -> String {
    String::from_utf8_lossy(guard.as_bytes()).into_owned()
}

/// Returns the canonical form of a document, independent of the order of its fields.
fn canonical(body: &Json) -> String {
    crate::content::canonical(body, &Counted::All).unwrap()
}

/// A write succeeds if the document has the expected guard; otherwise it returns the current
/// document.
pub async fn contents_are_guarded<S: Contents>(store: S) {
    store.prepare_contents(&things()).await.unwrap();
    store.prepare_contents(&things()).await.unwrap();
    let ask = async |write| store.write_contents(&things(), [write].into()).await.unwrap().pop().unwrap();
    let refused = |found: Wrote| match found {
        Wrote::Refused(stored) => stored.map(|stored| (shown(&stored.guard), canonical(&stored.body))),
        Wrote::Written => panic!("it was written"),
    };
    assert_eq!(stored(&store, "a").await, None);
    assert_eq!(refused(ask(write("a", Some("x"), Some(("y", "{}")))).await), None);
    assert_eq!(refused(ask(write("a", Some("x"), None)).await), None);
    assert_eq!(ask(write("a", None, Some(("v1", r#"{"n":1}"#)))).await, Wrote::Written);
    let first = Some(("v1".to_owned(), r#"{"n":1}"#.to_owned()));
    assert_eq!(refused(ask(write("a", None, Some(("v1", r#"{"n":1}"#)))).await), first);
    assert_eq!(refused(ask(write("a", Some("v0"), Some(("v2", r#"{"n":2}"#)))).await), first);
    assert_eq!(refused(ask(write("a", Some("v0"), None)).await), first);
    assert_eq!(ask(write("a", Some("v1"), Some(("v2", r#"{"m":2}"#)))).await, Wrote::Written);
    let found = stored(&store, "a").await.unwrap();
    assert_eq!(
        (found.guard, canonical(&found.body)),
        (guard("v2"), r#"{"m":2}"#.to_owned()),
        "all of it is another one"
    );
    assert_eq!(found.operations.iter().count(), 0);
    assert_eq!(ask(write("a", Some("v2"), None)).await, Wrote::Written);
    assert_eq!(stored(&store, "a").await, None);
    assert_eq!(ask(write("a", None, Some(("v1", r#"{"n":1}"#)))).await, Wrote::Written, "it is there anew");
}

/// Each of many writes gets its own answer.
pub async fn many_contents_are_written_at_once<S: Contents>(store: S) {
    const MANY: usize = 300;
    store.prepare_contents(&things()).await.unwrap();
    let names: Vec<_> = (0..MANY).map(|number| format!("d{number}")).collect();
    let inserts = names.iter().step_by(2).map(|name| write(name, None, Some(("v1", r#"{"n":1}"#))));
    let wrote = store.write_contents(&things(), inserts.collect()).await.unwrap();
    assert_eq!(wrote, vec![Wrote::Written; MANY / 2]);
    let of = |at: usize| match at % 6 {
        0 | 3 => write(&names[at], Some("v1"), Some(("v2", r#"{"n":2}"#))),
        1 => write(&names[at], None, Some(("v2", r#"{"n":2}"#))),
        2 => write(&names[at], Some("v0"), Some(("v2", r#"{"n":2}"#))),
        // The content is already stored, as after a lost answer.
        4 => write(&names[at], None, Some(("v1", r#"{"n":1}"#))),
        _ => write(&names[at], Some("v1"), None),
    };
    let wrote = store.write_contents(&things(), (0..MANY).map(of).collect()).await.unwrap();
    for (at, wrote) in wrote.into_iter().enumerate() {
        let there = match wrote {
            Wrote::Written => "written".to_owned(),
            Wrote::Refused(None) => "missing".to_owned(),
            Wrote::Refused(Some(stored)) => {
                assert_eq!(stored.id, id(&names[at]));
                shown(&stored.guard)
            }
        };
        assert_eq!(there, ["written", "written", "v1", "missing", "v1", "missing"][at % 6], "{at}");
    }
    let found = store.contents(&things(), names.iter().map(|name| id(name)).collect()).await.unwrap();
    let guards = found.iter().fold((0, 0), |(one, two), stored| match stored.guard.as_bytes() {
        b"v1" => (one + 1, two),
        _ => (one, two + 1),
    });
    assert_eq!(guards, (MANY / 3, MANY / 3));
    assert_eq!(store.write_contents(&things(), [].into()).await.unwrap(), []);
}

/// Any content is read back with the same version, and operations have the same effect in every
/// store.
pub async fn contents_keep_their_versions<S: Contents>(store: S) {
    let bodies = [
        r"{}",
        r#"{"z":1,"a":{"y":[1,2.5,-0.0,1e300,9007199254740993,-9223372036854775808],"x":null}}"#,
        r#"{"é":"ü\n\u0000x","":"empty","a.b":1,"$c":2,"_id":"other","nested":{"_id":1,"$set":{}}}"#,
        r#"{"at":{"$date":"2026-11-16T08:00:00Z"},"id":{"$oid":"0123456789abcdef01234567"},"no":{"$date":"soon"}}"#,
        r#"{"_content":{"guard":"mine"},"_fold":1}"#,
        r#"{"x.y":{"":{"$x":1,"a.b":[{"$id":1},{"$ref":"r"}]}},"z":"$z","n":{"$$ROOT":"$$ROOT"}}"#,
        r#"{ "spaces" : [ 1.0 , -0, 12345678901234567890, 1e2 ] }"#,
        r#"{"list":[],"in":{}}"#,
    ];
    store.prepare_contents(&things()).await.unwrap();
    let version = |body: &Json| Version::of(body, &Counted::All).unwrap();
    let is = async |name: &str, body: &Json| {
        let found = stored(&store, name).await.unwrap();
        assert_eq!(version(&found.body), version(body), "{body:?} came back as {:?}", found.body);
        found
    };
    let put = async |name: &str, expected: Option<ContentGuard>, body: &Json| {
        let to = Some((version(body).into(), body.clone()));
        let wrote =
            store.write_contents(&things(), [ContentWrite { id: id(name), expected, to }].into()).await;
        assert_eq!(wrote.unwrap(), [Wrote::Written], "{body:?}");
        let found = is(name, body).await;
        assert_eq!(found.guard, ContentGuard::from(version(body)));
        found
    };
    for (number, body) in bodies.iter().enumerate() {
        let (name, mut body) = (format!("d{number}"), json(body));
        let mut last = put(&name, None, &body).await;
        for (number, value) in bodies.iter().enumerate() {
            let step = operation(u64::try_from(number).unwrap() + 1);
            let step = step.set("extra", &json(value)).unwrap().set("more", &number).unwrap();
            let operated = store.operate(&things(), [(id(&name), step.clone())].into()).await.unwrap();
            assert_eq!(operated, [Operated::Applied], "{step:?}");
            body = step.apply(&body).unwrap();
            let found = is(&name, &body).await;
            assert_ne!(found.guard, last.guard);
            last = found;
        }
        for (number, step) in [
            operation(20).set("list", &[0; 0]),
            operation(21).push("list", &json(bodies[2])),
            operation(22).push("list", &json(bodies[5])),
            operation(23).pull("list", &json(bodies[2])),
            operation(24).push("in.list", &1),
        ]
        .into_iter()
        .enumerate()
        {
            let step = step.unwrap();
            let operated = store.operate(&things(), [(id(&name), step.clone())].into()).await.unwrap();
            match step.apply(&body) {
                Ok(after) => {
                    assert_eq!(operated, [Operated::Applied], "{step:?}");
                    body = after;
                }
                Err(invalid) => assert_eq!(operated, [Operated::Impossible(invalid)], "{number}"),
            }
            last = is(&name, &body).await;
        }
        for next in bodies {
            last = put(&name, Some(last.guard), &json(next)).await;
        }
        let remembered: Vec<_> = last.operations.iter().map(OperationId::get).collect();
        let applied = (1..).take(bodies.len()).chain(20..24);
        assert_eq!(remembered, applied.collect::<Vec<_>>(), "an update forgets nothing");
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Thing {
    n: i64,
    seen: i64,
}

/// An update is applied, was applied before, or conflicts; fields that do not count are ignored.
pub async fn updates_name_what_they_were_made_from<S: Contents>(store: S) {
    let things = Versioned::<Thing, _>::new(store, THINGS).await.unwrap();
    let one = Thing { n: 1, seen: 0 };
    let WriteAnswer::Applied(first) = things.insert("a", &one).await.unwrap() else { panic!("it was there") };
    assert_eq!(things.insert("a", &one).await.unwrap(), WriteAnswer::AlreadyApplied(first));
    assert_eq!(things.get("a").await.unwrap().unwrap().version, first);
    let two = Thing { n: 2, ..one };
    let WriteAnswer::Applied(second) = things.update("a", first, &two).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(things.update("a", first, &two).await.unwrap(), WriteAnswer::AlreadyApplied(second));
    let three = Thing { n: 3, ..one };
    let WriteAnswer::Conflict(Some(current)) = things.update("a", first, &three).await.unwrap() else {
        panic!("written")
    };
    assert_eq!((current.version, current.document), (second, two.clone()));
    let WriteAnswer::Conflict(Some(_)) = things.insert("a", &three).await.unwrap() else { panic!("written") };
    assert_eq!(things.update("b", first, &two).await.unwrap(), WriteAnswer::Conflict(None));

    let unseen = things.clone().counting(Counted::except(["seen"]).unwrap());
    let again = Thing { n: 2, seen: 9 };
    let WriteAnswer::AlreadyApplied(counted) = unseen.insert("a", &again).await.unwrap() else {
        panic!("it counts")
    };
    let WriteAnswer::Applied(_) = unseen.update("a", counted, &three).await.unwrap() else {
        panic!("refused")
    };

    let third = things.get("a").await.unwrap().unwrap().version;
    assert!(matches!(things.delete("a", second).await.unwrap(), WriteAnswer::Conflict(Some(_))));
    assert_eq!(things.delete("a", third).await.unwrap(), WriteAnswer::Applied(third));
    assert_eq!(things.delete("a", third).await.unwrap(), WriteAnswer::AlreadyApplied(third));
    assert_eq!(things.get("a").await.unwrap(), None);

    let writes = [("x", None, &one), ("y", Some(first), &two), ("z", None, &three)];
    let answers = things.write_all(writes).await.unwrap();
    assert!(
        matches!(
            answers[..],
            [WriteAnswer::Applied(_), WriteAnswer::Conflict(None), WriteAnswer::Applied(_)]
        ),
        "{answers:?}"
    );
}

/// Concurrent changes of one document lose nothing.
pub async fn changes_are_retried<S: Contents>(store: S) {
    const WRITERS: i64 = 6;
    const EACH: i64 = 10;
    let patient =
        Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(50)).without_limit();
    let things = Versioned::<Thing, _>::new(store, THINGS).await.unwrap().retry(patient);
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let things = things.clone();
        writers.spawn(async move {
            for _ in 0..EACH {
                let more = |thing: Option<Thing>| {
                    let Thing { n, seen } = thing.unwrap_or(Thing { n: 0, seen: 0 });
                    Ok(Some(Thing { n: n + 1, seen }))
                };
                things.change("a", more).await.unwrap();
            }
        });
    }
    soon(writers.join_all()).await;
    assert_eq!(things.get("a").await.unwrap().unwrap().document.n, WRITERS * EACH);
    assert_eq!(things.change("a", |_| Ok(None)).await.unwrap(), None);
    assert_eq!(things.get("a").await.unwrap(), None);
}

/// An operation is applied once, however often it comes, and not at all if it is too old to be
/// known.
pub async fn operations_are_applied_once<S: Contents>(store: S) {
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let body = json(r#"{"n":1,"list":["a","b","a"],"deep":{"n":0.5}}"#);
    let WriteAnswer::Applied(_) = things.insert("a", &body).await.unwrap() else { panic!("it was there") };
    let step = operation(1).increment("n", -3).unwrap().push("list", &"c").unwrap();
    let step = step.increment("deep.n", 0.25).unwrap().set("deep.new", &[1, 2]).unwrap();
    assert_eq!(things.operate("a", step.clone()).await.unwrap(), Operated::Applied);
    assert_eq!(things.operate("a", step).await.unwrap(), Operated::AlreadyApplied);
    assert_eq!(
        things.operate("a", operation(2).pull("list", &"a").unwrap()).await.unwrap(),
        Operated::Applied
    );
    let now = async || canonical(&things.get("a").await.unwrap().unwrap().document);
    assert_eq!(now().await, r#"{"deep":{"n":0.75,"new":[1,2]},"list":["b","c"],"n":-2}"#);

    let many = (3..).take(REMEMBERED).map(|number| (id("a"), operation(number).increment("n", 1).unwrap()));
    let many: Vec<_> = many.collect();
    assert_eq!(things.operate_all(many.clone()).await.unwrap(), vec![Operated::Applied; REMEMBERED]);
    assert_eq!(things.operate_all(many).await.unwrap(), vec![Operated::AlreadyApplied; REMEMBERED]);
    let (before, old) = (now().await, operation(2).increment("n", 1).unwrap());
    let error = things.operate("a", old).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("older than all operations that the document remembers"), "{error}");
    assert_eq!(now().await, before, "it was applied");
    let late = operation(1_000).increment("n", 1).unwrap();
    let mixed = vec![
        (id("a"), late.clone()),
        (id("nobody"), late.clone()),
        (id("a"), operation(4).increment("n", 1).unwrap()),
        (id("a"), operation(1_001).push("n", &1).unwrap()),
        (id("a"), late),
    ];
    let operated = things.operate_all(mixed).await.unwrap();
    let [first, Operated::Missing, Operated::AlreadyApplied, Operated::Impossible(_), last] = &operated[..]
    else {
        panic!("{operated:?}");
    };
    let both = [first, last];
    assert!(both.contains(&&Operated::Applied) && both.contains(&&Operated::AlreadyApplied), "{operated:?}");
}

/// Each of many writes that come together is judged by itself, and answered in its place.
pub async fn many_are_judged_one_by_one<S: Contents>(store: S) {
    const MANY: u64 = 600;
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let names: Vec<_> = (0..MANY).map(|number| format!("d{number:04}")).collect();
    let bodies: Vec<_> =
        (0..MANY).map(|number| json(&format!(r#"{{"n":{number},"wide":{{"in":1}}}}"#))).collect();
    let new = names.iter().zip(&bodies).map(|(name, body)| (name.as_str(), None, body));
    let number = json("7");
    let mut answers =
        things.write_all([("no-object", None, &number)].into_iter().chain(new)).await.unwrap().into_iter();
    assert!(matches!(answers.next(), Some(WriteAnswer::Impossible(_))), "it is no document");
    assert_eq!(things.get("no-object").await.unwrap(), None);
    let mut versions = Vec::new();
    for answer in answers {
        let WriteAnswer::Applied(version) = answer else { panic!("{answer:?}") };
        versions.push(version);
    }
    // One update has an outdated version, one is already stored, one has a type that can't be
    // incremented, one another type.
    let mut next: Vec<_> = (0..MANY).map(|number| json(&format!(r#"{{"n":{}}}"#, number * 2))).collect();
    next[300] = bodies[300].clone();
    next[400] = json(r#"{"n":true}"#);
    next[500] = json(r#"{"n":1.5}"#);
    next[501] = json(r#"{"n":{"$numberLong":"7"}}"#);
    versions[200] = versions[201];
    let updates =
        names.iter().zip(&versions).zip(&next).map(|((name, from), to)| (name.as_str(), Some(*from), to));
    for (number, answer) in things.write_all(updates).await.unwrap().into_iter().enumerate() {
        match number {
            200 => assert!(matches!(answer, WriteAnswer::Conflict(Some(_))), "{answer:?}"),
            // The content is written again, or found to be the same.
            300 => assert!(!matches!(answer, WriteAnswer::Conflict(_)), "{answer:?}"),
            _ => assert!(matches!(answer, WriteAnswer::Applied(_)), "{number}: {answer:?}"),
        }
    }
    let increments = |id: u64| -> Vec<_> {
        let step = operation(id).increment("n", 10).unwrap();
        names.iter().map(|name| (self::id(name), step.clone())).collect()
    };
    // The second operation is older than the first, and comes later.
    for (number, is_again) in [(7, false), (5, false), (7, true), (5, true), (9, false)] {
        for (at, operated) in things.operate_all(increments(number)).await.unwrap().into_iter().enumerate() {
            match (at, is_again) {
                (400, _) => assert!(matches!(operated, Operated::Impossible(_)), "{operated:?}"),
                (_, true) => assert_eq!(operated, Operated::AlreadyApplied, "{at}"),
                (_, false) => assert_eq!(operated, Operated::Applied, "{at}"),
            }
        }
    }
    for (name, expected) in [
        ("d0007", r#"{"n":44}"#),
        ("d0200", r#"{"n":230,"wide":{"in":1}}"#),
        ("d0300", r#"{"n":330,"wide":{"in":1}}"#),
        ("d0400", r#"{"n":true}"#),
        ("d0500", r#"{"n":31.5}"#),
        ("d0501", r#"{"n":37}"#),
    ] {
        let found = things.get(name).await.unwrap().unwrap().document;
        assert_eq!(canonical(&found), canonical(&json(expected)), "{name}");
    }
}

/// An operation that the document does not allow is rejected, and changes nothing.
pub async fn impossible_operations_change_nothing<S: Contents>(store: S) {
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let body =
        json(r#"{"n":1,"max":9223372036854775807,"text":"x","list":[1],"deep":{},"objects":[{"n":1}]}"#);
    let WriteAnswer::Applied(version) = things.insert("a", &body).await.unwrap() else {
        panic!("it was there")
    };
    let cases = [
        (operation(1).increment("missing", 1), "missing"),
        (operation(2).increment("text", 1), "text"),
        (operation(3).increment("max", 1), "max"),
        (operation(4).push("n", &1), "n"),
        (operation(5).push("deep.list", &1), "deep.list"),
        (operation(6).pull("text", &1), "text"),
        (operation(7).set("text.x", &1), "text.x"),
        (operation(8).set("none.x", &1), "none.x"),
        (operation(9).increment("objects.n", 1), "objects.n"),
        (operation(10).set("objects.n", &1), "objects.n"),
        (operation(11).increment("n", 1).and_then(|step| step.increment("text", 1)), "text"),
    ];
    for (operation, path) in cases {
        let error = things.operate("a", operation.unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{path}: {error}");
        assert!(error.to_string().contains(&format!("{path:?}")), "{path}: {error}");
    }
    let current = things.get("a").await.unwrap().unwrap();
    assert_eq!((current.version, canonical(&current.document)), (version, canonical(&body)));
    let error = things.operate("nobody", operation(1).set("n", &1).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("no such document"), "{error}");
}

/// Concurrent operations on the same and on different fields all count, and count once although
/// each comes twice.
pub async fn concurrent_operations_all_count<S: Contents>(store: S) {
    const OPERATORS: u64 = 6;
    const EACH: u64 = 4;
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let body = json(r#"{"all":0,"f0":0,"f1":0,"f2":0,"f3":0,"f4":0,"f5":0,"list":[]}"#);
    let WriteAnswer::Applied(_) = things.insert("a", &body).await.unwrap() else { panic!("it was there") };
    let mut operators = JoinSet::new();
    for operator in 0..OPERATORS {
        let things = things.clone();
        operators.spawn(async move {
            for number in 0..EACH {
                let step = operation(1 + number * OPERATORS + operator).increment("all", 1).unwrap();
                let step =
                    step.increment(&format!("f{operator}"), 1).unwrap().push("list", &operator).unwrap();
                assert_eq!(things.operate("a", step.clone()).await.unwrap(), Operated::Applied);
                assert_eq!(things.operate("a", step).await.unwrap(), Operated::AlreadyApplied);
            }
        });
    }
    soon(operators.join_all()).await;
    let found: serde_json::Value = things.get("a").await.unwrap().unwrap().document.to().unwrap();
    assert_eq!(found["all"], OPERATORS * EACH);
    assert_eq!(found["f3"], EACH);
    assert_eq!(found["list"].as_array().unwrap().len() as u64, OPERATORS * EACH);
}

/// Operations change the version, and updates see the results of operations.
pub async fn operations_and_updates_meet<S: Contents>(store: S) {
    let things = Versioned::<Thing, _>::new(store.clone(), THINGS).await.unwrap();
    let one = Thing { n: 1, seen: 0 };
    let WriteAnswer::Applied(first) = things.insert("a", &one).await.unwrap() else { panic!("it was there") };
    things.operate("a", operation(1).increment("n", 1).unwrap()).await.unwrap();
    let three = Thing { n: 3, seen: 0 };
    let WriteAnswer::Conflict(Some(current)) = things.update("a", first, &three).await.unwrap() else {
        panic!("written")
    };
    assert_eq!(current.document, Thing { n: 2, seen: 0 });
    let WriteAnswer::Applied(_) = things.update("a", current.version, &three).await.unwrap() else {
        panic!("refused")
    };
    let remembers = operation(1).increment("n", 1).unwrap();
    assert_eq!(
        things.operate("a", remembers).await.unwrap(),
        Operated::AlreadyApplied,
        "an update forgets nothing"
    );
    // Back to the content it was inserted with.
    things.operate("a", operation(2).increment("n", -2).unwrap()).await.unwrap();
    assert_eq!(things.insert("a", &one).await.unwrap(), WriteAnswer::AlreadyApplied(first));
    let guards = store.contents(&ExternalCollection::new(THINGS).unwrap(), vec![id("a")]).await.unwrap();
    assert_ne!(guards[0].guard, ContentGuard::from(first), "an operation has its own guard");
}

/// The same operations lead to the same document in all stores.
pub async fn operations_do_the_same_everywhere<S: Contents>(store: S) {
    let body = json(
        r#"{"i":1,"l":{"$numberLong":"5"},"d":0.5,"list":[1,"1",{"a":1,"b":2},[1],1.0,null],"in":{"list":[],"n":2147483647}}"#,
    );
    let (ours, theirs) = (
        Versioned::<Json, _>::new(Memory::default(), THINGS).await.unwrap(),
        Versioned::<Json, _>::new(store, THINGS).await.unwrap(),
    );
    let WriteAnswer::Applied(_) = ours.insert("a", &body).await.unwrap() else { panic!("it was there") };
    let WriteAnswer::Applied(_) = theirs.insert("a", &body).await.unwrap() else { panic!("it was there") };
    let values = [
        json("1"),
        json("\"1\""),
        json(r#"{"a":1,"b":2}"#),
        json(r#"{"b":2,"a":1}"#),
        json("[1]"),
        json("null"),
        json("2.5"),
        json(r#"{"$date":"2026-11-16T08:00:00Z"}"#),
        json(r#"{"a":{"$oid":"0123456789abcdef01234567"}}"#),
        json("9007199254740993"),
    ];
    let paths = ["i", "l", "d", "list", "in", "in.list", "in.n", "new", "in.new", "new.new", "list.a"];
    // Deterministic pseudo-random numbers.
    let mut chance = 7_u64;
    let mut draw = |below: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(chance >> 33).unwrap() % below
    };
    let mut applied = 0;
    for number in 1..400 {
        let mut step = operation(number);
        for _ in 0..=draw(2) {
            let (path, value) = (paths[draw(paths.len())], &values[draw(values.len())]);
            let next = match draw(5) {
                0 => step.clone().increment(path, i64::try_from(draw(7)).unwrap() - 3),
                1 => step.clone().increment(path, 0.25),
                2 => step.clone().push(path, value),
                3 => step.clone().pull(path, value),
                _ if draw(4) > 0 => continue,
                _ => step.clone().set(path, value),
            };
            step = next.unwrap_or(step);
        }
        let operate = |things: &Versioned<Json, _>| (things.clone(), step.clone());
        let (things, same) = operate(&ours);
        let expected = things.operate_all(vec![(id("a"), same)]).await.unwrap().pop().unwrap();
        let found = theirs.operate_all(vec![(id("a"), step.clone())]).await.unwrap().pop().unwrap();
        assert_eq!(found, expected, "{step:?}");
        applied += usize::from(found == Operated::Applied);
        let (ours, theirs) = (ours.get("a").await.unwrap().unwrap(), theirs.get("a").await.unwrap().unwrap());
        assert_eq!(canonical(&theirs.document), canonical(&ours.document), "{step:?}");
    }
    assert!(applied > 100, "{applied} were applied");
}

/// Reactions see such documents without their guards.
pub async fn contents_are_reacted_to<S: Contents + ReactionStore>(store: S) {
    let things = Versioned::<Thing, _>::new(store.clone(), THINGS).await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let reaction = Reaction::on_plain(THINGS, "tell").run(move |ctx: Context<Json>| {
        let tell = tell.clone();
        async move { Ok(tell.send(canonical(&ctx.document().await?))?) }
    });
    let reacting = Reactor::on(store).reaction(reaction).start().await.unwrap();
    let WriteAnswer::Applied(_) = things.insert("a", &Thing { n: 1, seen: 0 }).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(soon(told.recv()).await.unwrap(), r#"{"n":1,"seen":0}"#);
    things.operate("a", operation(1).increment("n", 1).unwrap()).await.unwrap();
    assert_eq!(soon(told.recv()).await.unwrap(), r#"{"n":2,"seen":0}"#);
    reacting.stop(Duration::from_secs(5)).await;
}
