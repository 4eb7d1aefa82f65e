//! The shop's projections in JavaScript. They make the same documents as those of the example in
//! Rust.

use std::fmt::Write as _;

use tempfile::TempDir;

const SCRIPTS: [(&str, &str); 4] = [
    ("cart_details", include_str!("cart_details.js")),
    ("client_summary", include_str!("client_summary.js")),
    ("daily_totals", include_str!("daily_totals.js")),
    ("open_carts", include_str!("open_carts.js")),
];

/// Creates a directory with a leftfold.toml for this store, and its scripts.
pub(crate) fn configured(store: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut file = format!("[store]\nurl = {store:?}\n");
    for (name, script) in SCRIPTS {
        write!(file, "\n[[projection]]\nname = \"{name}\"\nscript = \"{name}.js\"\n").unwrap();
        std::fs::write(directory.path().join(format!("{name}.js")), script).unwrap();
    }
    std::fs::write(directory.path().join("leftfold.toml"), file).unwrap();
    directory
}
