//! Guarded writes, one and many.

use std::time::Duration;

use tokio::task::JoinSet;

use super::fixtures::{THINGS, Thing, canonical, guard, id, operation, shown, stored, things, write};
use crate::backoff::Backoff;
use crate::content::{
    ContentGuard, ContentWrite, Contents, Counted, Operated, OperationId, Version, Versioned, WriteAnswer,
    Wrote,
};
use crate::json::Json;
use crate::testing::conformance::{json, soon};

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
    assert_eq!(
        ask(write("a", None, Some(("v1", r#"{"n":1}"#)))).await,
        Wrote::Written,
        "an insert after a delete succeeds"
    );
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

/// An update is applied, was applied before, or conflicts; fields that do not count are ignored.
pub async fn updates_name_what_they_were_made_from<S: Contents>(store: S) {
    let things = Versioned::<Thing, _>::new(store, THINGS).await.unwrap();
    let one = Thing { n: 1, seen: 0 };
    let WriteAnswer::Applied(first) = things.insert("a", &one).await.unwrap() else {
        panic!("the document exists already")
    };
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
