//! The stores look alike: the same parts of the same traits are in files of the same name.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sources::{crates, sources};

/// The crates of stores.
const STORES: [&str; 2] = ["leftfold-mongodb", "leftfold-sqlite"];

#[test]
fn a_trait_is_implemented_in_files_of_the_same_name() {
    let traits = traits();
    let mut places: BTreeMap<String, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for store in STORES {
        for (path, text) in files(store) {
            for name in text.lines().filter_map(implemented).filter(|name| traits.contains(*name)) {
                places.entry(name.to_owned()).or_default().entry(store).or_default().push(path.clone());
            }
        }
    }
    assert!(places.len() >= 9, "only {} traits were found", places.len());
    for (name, places) in places {
        let mut files = places.values();
        let first = files.next();
        assert!(files.all(|other| Some(other) == first), "{name} is not in the same file: {places:#?}");
    }
}

#[test]
fn the_table_of_shared_modules_is_the_same_in_every_store() {
    let tables = STORES.map(|store| (store, tables(store)));
    for (store, [shared, _]) in &tables {
        assert_eq!(shared, &tables[0].1[0], "the first table of {store} differs from that of {}", STORES[0]);
    }
}

#[test]
fn the_tables_of_modules_list_every_file_and_no_other() {
    for store in STORES {
        let there: BTreeSet<_> = files(store).into_keys().filter(|path| path != "lib.rs").collect();
        let mut listed = BTreeSet::new();
        for row in tables(store).concat() {
            let [module, _, files] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
                panic!("{store}: the row has other columns: {row}")
            };
            let module = module.trim_matches('`');
            let path = |file: &str| format!("{module}{}.rs", file.trim_matches('`'));
            listed.insert(path(if module.ends_with('/') { "mod" } else { "" }));
            listed.extend(files.split(", ").filter(|file| !file.is_empty()).map(path));
        }
        assert_eq!(listed, there, "the tables in {store}/src/lib.rs are not what is there");
    }
}

/// Returns the traits that the main crate defines.
fn traits() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources(&crates().join("leftfold/src")) {
        let text = fs::read_to_string(path).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("pub trait "));
        found.extend(names.filter_map(|rest| rest.split([':', '<', ' ']).next()).map(str::to_owned));
    }
    found
}

/// Returns the source files of a store by their paths in it.
fn files(store: &str) -> BTreeMap<String, String> {
    let directory = crates().join(store).join("src");
    let relative = |path: &std::path::Path| path.strip_prefix(&directory).unwrap().display().to_string();
    let paths = sources(&directory).into_iter();
    paths.map(|path| (relative(&path), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the name of the trait that a line implements.
fn implemented(line: &str) -> Option<&str> {
    let (head, _) = line.strip_prefix("impl")?.split_once(" for ")?;
    // Generic parameters come before the trait, its arguments after it.
    let name = head.rsplit_once("> ").map_or(head, |(_, name)| name).trim();
    name.split('<').next()?.rsplit("::").next()
}

/// Returns the rows of the two tables of modules in a store's documentation: those of all stores,
/// and its own.
fn tables(store: &str) -> [Vec<String>; 2] {
    let text = fs::read_to_string(crates().join(store).join("src/lib.rs")).unwrap();
    let (_, modules) = text.split_once("//! # Modules\n").unwrap();
    let (shared, own) = modules.split_once("//! Only this store has:\n").unwrap();
    [shared, own].map(|part| {
        let rows = part.lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix('|'));
        // The first two rows are the heading and its line.
        rows.skip(2).map(str::to_owned).collect()
    })
}
