//! Operations: applied once, the same in all stores.

use tokio::task::JoinSet;

use super::fixtures::{THINGS, Thing, canonical, id, operation};
use crate::content::{ContentGuard, Contents, Operated, REMEMBERED, Versioned, WriteAnswer};
use crate::error::Kind;
use crate::json::Json;
use crate::react::ExternalCollection;
use crate::store::Memory;
use crate::testing::conformance::{json, soon};

/// An operation is applied once, however often it comes, and not at all if it is too old to be
/// known.
pub async fn operations_are_applied_once<S: Contents>(store: S) {
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let body = json(r#"{"n":1,"list":["a","b","a"],"deep":{"n":0.5}}"#);
    let WriteAnswer::Applied(_) = things.insert("a", &body).await.unwrap() else {
        panic!("the document exists already")
    };
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

/// An operation that the document does not allow is rejected, and changes nothing.
pub async fn impossible_operations_change_nothing<S: Contents>(store: S) {
    let things = Versioned::<Json, _>::new(store, THINGS).await.unwrap();
    let body =
        json(r#"{"n":1,"max":9223372036854775807,"text":"x","list":[1],"deep":{},"objects":[{"n":1}]}"#);
    let WriteAnswer::Applied(version) = things.insert("a", &body).await.unwrap() else {
        panic!("the document exists already")
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
    let WriteAnswer::Applied(_) = things.insert("a", &body).await.unwrap() else {
        panic!("the document exists already")
    };
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
    let WriteAnswer::Applied(first) = things.insert("a", &one).await.unwrap() else {
        panic!("the document exists already")
    };
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
    let WriteAnswer::Applied(_) = ours.insert("a", &body).await.unwrap() else {
        panic!("the document exists already")
    };
    let WriteAnswer::Applied(_) = theirs.insert("a", &body).await.unwrap() else {
        panic!("the document exists already")
    };
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
