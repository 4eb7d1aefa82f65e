//! The abilities of scripts, and their restrictions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leftfold::testing::{Spec, spec};
use leftfold::{Json, NewEvent, Projection as _};
use leftfold_script::{Script, ScriptLimits};
use serde_json::json;

fn compile(source: &str) -> Script {
    Script::compile("docs", "docs.js", ScriptLimits::default(), source).unwrap()
}

fn refused(source: &str) -> String {
    Script::compile("docs", "docs.js", ScriptLimits::default(), source).unwrap_err().to_string()
}

fn event(kind: &str, data: &serde_json::Value) -> NewEvent {
    NewEvent::new(kind, Json::of(data).unwrap()).unwrap()
}

/// Compiles a script with one function, for events of the type `happened`.
fn on_happened(function: &str) -> Spec<Script> {
    spec(compile(&format!("export default {{ happened: {function} }};")))
}

/// Calls the function with one event with this data.
fn after(function: &str, data: &serde_json::Value) -> Spec<Script> {
    on_happened(function).given_events("a", [event("happened", data)])
}

#[test]
fn functions_by_type_fold_events_into_documents() {
    let carts = compile(
        "
        export const version = 3;
        export default {
          opened: (_, event) => ({ client: event.data.client, items: 0 }),
          added: (cart, { data }) => { cart.items += data.quantity; return cart; },
          canceled: () => null,
        };
        ",
    );
    assert_eq!(carts.version(), 3);
    let fingerprint = carts.fingerprint();
    assert!(fingerprint.starts_with("3-") && fingerprint.len() == 18, "{fingerprint}");
    assert_eq!(carts.types().collect::<Vec<_>>(), ["opened", "added", "canceled"]);
    spec(carts)
        .given_events(
            "a",
            [event("opened", &json!({ "client": "ann" })), event("added", &json!({ "quantity": 2 }))],
        )
        .given_events("b", [event("opened", &json!({ "client": "bob" })), event("canceled", &json!({}))])
        .given_events("c", [event("unheard-of", &json!({}))])
        .then_only([("a", json!({ "client": "ann", "items": 2 }))])
        .holds_under_chaos();
}

#[test]
fn an_event_shows_all_that_is_known_of_it() {
    let metadata = json!({ "by": "ann" });
    on_happened("(_, event) => event")
        .at("2026-03-01T09:30:00.123456Z")
        .given_events("a", [event("happened", &json!([1, "é"])).with_id("e1").unwrap().with_metadata(&metadata).unwrap()])
        .then(
            "a",
            json!({ "id": "e1", "stream": "a", "revision": 1, "type": "happened", "time": "2026-03-01T09:30:00.123456Z",
                "data": [1, "é"], "metadata": { "by": "ann" } }),
        );
}

#[test]
fn a_route_names_one_document_or_several_or_none() {
    let script = |route: &str| {
        let source = format!(
            "export const route = {route}; export default {{ sold: (n = {{ count: 0 }}) => ({{ count: n.count + 1 }}) }};"
        );
        spec(compile(&source)).given_events("s", [event("sold", &json!({ "to": "ann", "of": "shoes" }))])
    };
    let once = json!({ "count": 1 });
    script("event => event.data.to").then_only([("ann", once.clone())]);
    script("({ data }) => [data.to, data.of, data.to]").then_only([("ann", once.clone()), ("shoes", once)]);
    script("() => null").then_only::<&str, ()>([]);
    script("() => 7").then_fails("route returned a number");
    script("() => ['a', undefined]").then_fails("route returned nothing");
    script("() => { throw new Error('no way') }").then_fails("Error: no way");
}

#[test]
fn a_failure_says_what_and_where() {
    let source =
        "export default {\n  happened: (doc, event) => {\n    return { total: doc.total + 1 };\n  },\n};";
    spec(compile(source))
        .given_events("a", [event("happened", &json!({}))])
        .then_fails("TypeError: ")
        .then_fails("docs.js:3");
    after("() => { throw 'a text' }", &json!({})).then_fails("the script threw a text");
}

#[test]
fn what_is_no_document_is_refused() {
    for (function, why) in [
        ("() => undefined", "returned nothing; return the document, or null to delete it"),
        ("() => { }", "returned nothing"),
        ("() => 7", "returned a number"),
        ("() => []", "returned an array"),
        ("async () => ({})", "returned a promise"),
        ("() => ({ a: [{ b: 0 / 0 }] })", "in which a.0.b is NaN"),
        ("() => ({ a: 1 / 0, b: null })", "in which a is Infinity"),
        ("() => ({ a: 1n })", "BigInt"),
        ("() => ({ a: [new Date(NaN)] })", "in which a.0 is an invalid date"),
        ("() => ({ toJSON: () => [] })", "returned an object with toJSON"),
        ("() => new Date(0)", "returned an object with toJSON"),
        ("(_, event) => ({ n: event.data.n + 1 })", "TypeError"),
    ] {
        after(function, &json!({ "n": 9_007_199_254_740_993_u64 })).then_fails(why);
    }
    after("() => ({ a: null, b: 'null' })", &json!({})).then("a", json!({ "a": null, "b": "null" }));
}

#[test]
fn nothing_differs_from_run_to_run() {
    for (expression, why) in [
        ("Date.now()", "Date.now differs from run to run; use event.time"),
        ("new Date()", "the current time"),
        ("Date()", "the current time"),
        ("new Date(2026, 1, 1)", "Date.UTC"),
        ("new Date('2026-01-01T10:00')", "a date without a zone"),
        ("Date.parse('1 January 2026')", "a date without a zone"),
        ("new Date({ toString: () => '1 January 2026' })", "not another object"),
        ("new Date(['1 January 2026'])", "not another object"),
        ("Date.parse({ toString: () => '1 January 2026' })", "a date without a zone"),
        ("Math.random()", "Math.random differs from run to run"),
        ("performance.now()", "performance"),
        ("new WeakRef({})", "WeakRef"),
        ("fetch('http://localhost')", "fetch"),
        ("require('fs')", "require"),
        ("setTimeout(() => {}, 1)", "setTimeout"),
    ] {
        after(&format!("() => ({{ is: {expression} }})"), &json!({})).then_fails(why);
    }
    after("(_, { time }) => { const d = new Date(time); return { d, h: d.getHours(), z: d.getTimezoneOffset(), s: `${d}` } }", &json!({}))
        .then("a", json!({ "d": "2026-01-01T00:00:00.000Z", "h": 0, "z": 0, "s": "2026-01-01T00:00:00.000Z" }));
    after("() => ({ d: new Date('2026-01-01T10:00+02:00'), u: Date.UTC(2026, 0, 1), m: new Date('2026-01-01').getTime() })", &json!({}))
        .then("a", json!({ "d": "2026-01-01T08:00:00.000Z", "u": 1_767_225_600_000_u64, "m": 1_767_225_600_000_u64 }));
}

#[test]
fn whole_numbers_that_javascript_would_round_are_passed_on_exactly() {
    let data =
        json!({ "n": 9_007_199_254_740_993_u64, "m": -9_007_199_254_740_993_i64, "s": "9007199254740993" });
    on_happened("(doc, { data }) => ({ ...doc, ...data, has: [data.n] })")
        .given_events("a", [event("happened", &data), event("happened", &json!({}))])
        .then(
            "a",
            json!({ "n": 9_007_199_254_740_993_u64, "m": -9_007_199_254_740_993_i64, "s": "9007199254740993",
                "has": [null] }),
        );
}

#[test]
fn what_no_reader_could_read_is_refused_with_its_place() {
    let deep = "() => { let a = {}; for (let i = 0; i < 120; i++) a = { a }; return a }";
    for (function, why) in [
        ("() => ({ at: [{ text: '😀'.slice(0, 1) }] })", "at `at[0].text`"),
        ("() => ({ ['😀'.slice(0, 1)]: 1 })", "surrogate"),
        ("() => ({ n: JSON.rawJSON('1e999') })", "at `n`"),
        (deep, "nested too deep"),
    ] {
        after(function, &json!({})).holds_under_chaos().then_fails(why);
    }
}

#[test]
fn nothing_is_kept_from_event_to_event_in_globals() {
    after("() => { globalThis.count = 1; return {} }", &json!({})).then_fails("TypeError");
    after("() => { globalThis.__leftfoldFold = null; return {} }", &json!({})).then_fails("TypeError");
}

#[test]
#[should_panic(expected = "is not as expected")]
fn the_contract_check_finds_what_is_kept_in_a_module() {
    let counting = "let n = 0; export default { happened: () => ({ n: ++n }) };";
    spec(compile(counting))
        .given_events("a", [event("happened", &json!({})), event("happened", &json!({}))])
        .holds_under_chaos();
}

#[test]
fn limits_hold_and_the_next_event_is_folded() {
    let limits = ScriptLimits { time: Duration::from_millis(50), memory: 8 << 20 };
    let source = r#"export default {
        loops: () => { for (;;) {} },
        catches: () => { for (;;) { try { for (;;) {} } catch {} } },
        eats: () => { const all = []; for (;;) all.push(new Array(1000).fill("x")); },
        nests: () => { const f = () => f() + 1; return { n: f() }; },
        works: () => ({ fine: true }),
    };"#;
    let script = || spec(Script::compile("docs", "docs.js", limits, source).unwrap());
    for (kind, why) in [
        ("loops", "the script exceeded its time limit of 50ms"),
        ("catches", "the script exceeded its time limit of 50ms"),
        ("eats", "the script exceeded its memory limit of 8 MiB"),
        ("nests", "stack"),
    ] {
        script()
            .given_events("a", [event(kind, &json!({}))])
            .then_fails(why)
            .given_events("b", [event("works", &json!({}))])
            .then("b", json!({ "fine": true }));
    }
}

#[test]
fn what_can_not_be_compiled_says_why_and_where() {
    let cases = [
        ("export default {", "SyntaxError", "docs.js:1"),
        ("export const a = 1;", "export default must be an object", ""),
        ("export default { a: 1 };", "the export for a must be a function, not a number", ""),
        ("export default {}; export const route = 'a';", "route must be a function", ""),
        ("export default {}; export const version = 0;", "version must be a whole number", ""),
        ("\nthrow new Error('on purpose'); export default {};", "on purpose", "docs.js:2"),
        ("import fs from 'fs'; export default {};", "fs", ""),
        (
            "await new Promise(() => {}); export default {};",
            "the script waits for a promise that never resolves",
            "",
        ),
    ];
    for (source, why, place) in cases {
        let message = refused(source);
        assert!(message.contains(why) && message.contains(place), "{source}: {message}");
    }
}
