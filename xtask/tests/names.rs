//! A public name says one thing: no two public types of the workspace share one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sources;

use std::collections::BTreeMap;
use std::fs;

use sources::{crates, sources};

/// Names of one concept that each store, server or module has in its own way.
const SAME_CONCEPT: [&str; 4] = ["Error", "InTransaction", "Options", "Server"];

#[test]
fn no_two_public_types_share_a_name() {
    let crates = crates();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(&crates).unwrap() {
        for path in sources(&entry.unwrap().path().join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            let place = path.strip_prefix(&crates).unwrap().display().to_string();
            for name in text.lines().filter_map(public_type) {
                places.entry(name.to_owned()).or_default().push(place.clone());
            }
        }
    }
    assert!(places.len() > 100, "only {} public types were found", places.len());
    let is_twice =
        |(name, places): &(&String, &Vec<String>)| places.len() > 1 && !SAME_CONCEPT.contains(&name.as_str());
    let twice: Vec<_> = places
        .iter()
        .filter(is_twice)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(twice.is_empty(), "rename all but one of each:\n{}", twice.join("\n"));
}

/// Returns the name of the public type that a line defines, unless a macro's argument names it.
fn public_type(line: &str) -> Option<&str> {
    let definition = line.trim_start().strip_prefix("pub ")?;
    let keywords = ["struct ", "enum ", "trait ", "type "];
    let name = keywords.iter().find_map(|keyword| definition.strip_prefix(keyword))?;
    let name = name.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    (!name.is_empty()).then_some(name)
}
