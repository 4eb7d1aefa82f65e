//! Pages that name a file name one that exists, and the table "Where to look" names functions that
//! are where it says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn links_of_pages_lead_to_files() {
    let (mut links, mut broken) = (0, Vec::new());
    for page in pages(root()) {
        let text = fs::read_to_string(&page).unwrap();
        for target in targets(&text) {
            links += 1;
            if !page.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(links > 100, "only {links} links were found");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn functions_are_where_to_look_for_them() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let table = page.split("\n## ").find(|section| section.starts_with("Where to look")).unwrap();
    let mut functions = 0;
    for row in table.lines().filter(|line| line.starts_with('|') && line.contains("](")) {
        let [.., file, names, _] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let file = targets(file).next().unwrap();
        let source = fs::read_to_string(root().join(file)).unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            functions += 1;
            let (of, name) = name.rsplit_once("::").unwrap_or(("", name));
            let is_defined =
                ["fn ", "struct "].iter().any(|keyword| defines(&source, &format!("{keyword}{name}")));
            assert!(is_defined, "{file} defines no {name}");
            assert!(source.contains(of), "{file} has no {of}");
        }
    }
    assert!(functions > 20, "only {functions} functions were found");
}

/// Returns whether a source has an item that begins with these words.
fn defines(source: &str, item: &str) -> bool {
    let is_end = |character: char| !character.is_alphanumeric() && character != '_';
    source.match_indices(item).any(|(at, _)| source[at + item.len()..].starts_with(is_end))
}

/// Returns the files that a page links to, relative to the page. Pages that are part of rustdoc
/// also link to items.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| target.contains('.') && !target.contains("://") && !target.contains(['{', '`']))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the Markdown files of a directory.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&&*name) {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}
