//! `leftfold init`: a working file with a sample projection.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use leftfold_terminal::{Exit, Failure, Out};
use serde_json::json;

use super::FILE;

const SAMPLE: [(&str, &str); 3] = [
    (FILE, include_str!("sample/leftfold.toml")),
    ("projections/carts.js", include_str!("sample/carts.js")),
    ("projections/carts.spec.json", include_str!("sample/carts.spec.json")),
];

/// Writes the files. It overwrites no existing file.
pub(crate) fn init(directory: &Path, out: &mut Out) -> Result<Exit, Failure> {
    let failed = |file: &Path, error: std::io::Error| {
        Failure::new(Exit::Usage, format!("creating {}: {error}", file.display()))
    };
    for (name, _) in SAMPLE {
        let file = directory.join(name);
        if file.exists() {
            let message = format!(
                "creating {}: it exists already; choose another directory, or move it away",
                file.display()
            );
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    for (name, content) in SAMPLE {
        let file = directory.join(name);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        let created = OpenOptions::new().write(true).create_new(true).open(&file);
        created
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .map_err(|error| failed(&file, error))?;
    }
    let names = SAMPLE.map(|(name, _)| name);
    out.value(&json!({ "made": names }))?;
    out.line(format_args!("created {}", names.join(", ")))?;
    out.line("next: test the sample with `leftfold test`, run it with `leftfold serve`")?;
    Ok(Exit::Done)
}
