//! Projections that hang, exhaust memory, nest deeply, throw or return invalid documents, and the
//! events that trigger them.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::dice::Dice;

/// The bystander's projection.
const CARTS: &str = r#"export default {
  "cart-opened": (_, { data, time }) => ({ client: data.client, items: 0, opened: time }),
  "item-added": (cart, { data }) => ({ ...cart, items: cart.items + data.quantity }),
  "cart-canceled": () => null,
};
"#;

/// A hostile projection. It folds only events whose type is its own name.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    /// A function from the document and the event's data to the next document.
    function: &'static str,
    /// The route function; by default events go to the document named like the stream.
    route: Option<&'static str>,
}

const fn hostile(name: &'static str, function: &'static str) -> Hostile {
    Hostile { name, function, route: None }
}

/// All hostile projections. `data.n` is a number below 1,000.
pub(crate) const HOSTILE: &[Hostile] = &[
    // Native loops, which the JavaScript engine can't interrupt.
    hostile("searching", r#"() => ({ has: "a".repeat(600000).includes("a".repeat(300000) + "b") })"#),
    hostile("joining", r#"() => ({ text: new Array(4294967295).join("") })"#),
    hostile("matching", r#"() => ({ has: /^(a+)+$/.test("a".repeat(40) + "b") })"#),
    hostile("looping", "() => { for (;;) {} }"),
    hostile("eating", "() => { const all = []; for (;;) all.push(new Array(10000).fill(all.length)); }"),
    hostile("doubling", r#"() => { let text = "ab"; for (;;) text += text; }"#),
    hostile("recursing", "() => { const down = (n) => down(n + 1) + 1; return { n: down(0) }; }"),
    hostile("nesting", "() => { let doc = {}; for (let i = 0; i < 1000; i++) doc = { doc }; return doc; }"),
    hostile("halving", r"(_, { n }) => ({ text: `${n} 😀`.slice(0, -1) })"),
    hostile("overflowing", r#"() => ({ n: JSON.rawJSON("1e999") })"#),
    hostile("throwing", r#"(_, { n }) => { throw n % 2 ? new Error("x".repeat(n * 100)) : null; }"#),
    hostile(
        "tampering",
        "() => { JSON.stringify = () => \"{\"; Object.prototype.toJSON = () => 1; return { get n() { return this; } }; }",
    ),
    hostile("promising", "() => Promise.resolve({})"),
    hostile(
        "slow",
        "(doc, { n }) => { let x = n; for (let i = 0; i < 6e5; i++) x += i; return { n: (doc?.n ?? 0) + 1 }; }",
    ),
    // Large documents: one of some megabytes, and one that grows with each event.
    hostile("huge", r#"(_, { n }) => ({ text: "x".repeat((n % 4 + 1) * 1000000) })"#),
    hostile(
        "growing",
        r#"(doc, { n }) => ({ text: ((doc?.text ?? "") + "y".repeat(n * 20)).slice(-2000000) })"#,
    ),
    Hostile {
        name: "spreading",
        function: "(doc) => ({ n: (doc?.n ?? 0) + 1 })",
        route: Some("(event) => Array.from({ length: event.data.n }, (_, i) => `spread-${i}`)"),
    },
];

impl Hostile {
    fn script(&self) -> String {
        let Self { name, function, route } = self;
        let route = route.map(|route| format!("export const route = {route};\n")).unwrap_or_default();
        format!(
            "{route}const fold = {function};\nexport default {{ {name}: (doc, event) => fold(doc, event.data) }};\n"
        )
    }

    /// Returns the number of streams for the events. A parked document no longer hangs, so most
    /// projections have many.
    fn streams(&self) -> usize {
        match self.name {
            "growing" | "slow" => 3,
            "huge" => 40,
            _ => 2_000,
        }
    }
}

/// Writes the scripts of all projections.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    let directory = directory.join("projections");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("carts.js"), CARTS)?;
    HOSTILE.iter().try_for_each(|one| fs::write(directory.join(format!("{}.js", one.name)), one.script()))
}

/// Returns a valid configuration with all projections.
pub(crate) fn configuration(listen: &str, store: &str) -> String {
    let mut text = format!("[store]\nurl = {}\n\n[server]\nlisten = {}\n", json!(store), json!(listen));
    text.push_str("\n[[projection]]\nname = \"carts\"\nscript = \"projections/carts.js\"\n");
    for Hostile { name, .. } in HOSTILE {
        text.extend([format!(
            "\n[[projection]]\nname = \"{name}\"\nscript = \"projections/{name}.js\"\ntime_limit = \"200ms\"\n\
             memory_limit_mib = 32\n"
        )]);
    }
    text
}

/// Returns a stream and events for it, which trigger a hostile projection.
pub(crate) fn events(dice: &mut Dice) -> (String, Value) {
    let one = dice.pick(HOSTILE);
    let stream = format!("{}-{}", one.name, dice.below(one.streams()));
    let many = if matches!(one.name, "growing" | "slow" | "halving") { 1 + dice.below(20) } else { 1 };
    let events: Vec<_> =
        (0..many).map(|_| json!({ "type": one.name, "data": { "n": dice.below(1_000) } })).collect();
    (stream, events.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_type_of_a_projection_and_small_bodies() {
        let mut dice = Dice::new(3);
        for _ in 0..500 {
            let (stream, events) = events(&mut dice);
            let kind = events[0]["type"].as_str().unwrap();
            assert!(HOSTILE.iter().any(|one| one.name == kind));
            assert!(stream.starts_with(kind) && events.to_string().len() < 2_000);
        }
    }

    #[test]
    fn the_configuration_names_every_projection_once() {
        let text = configuration("127.0.0.1:1", "sqlite:a.db");
        for name in HOSTILE.iter().map(|one| one.name).chain(["carts"]) {
            assert_eq!(text.matches(&format!("name = \"{name}\"")).count(), 1, "{text}");
        }
    }
}
