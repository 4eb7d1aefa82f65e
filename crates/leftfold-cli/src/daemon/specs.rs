//! `leftfold test`: runs the specifications next to the scripts, from events to expected documents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use leftfold::testing::{Spec, spec};
use leftfold::{Json, NewEvent};
use leftfold_script::Script;
use leftfold_terminal::{Exit, Failure, Out, count};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Config;
use super::config::ProjectionConfig;

/// A case of a specification.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    given: Vec<Given>,
    /// The expected documents, by id; `null` means none.
    #[serde(default)]
    then: BTreeMap<String, Value>,
    /// The expected part of the last event's error.
    fails: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    stream: String,
    r#type: String,
    data: Json,
    id: Option<String>,
    time: Option<jiff::Timestamp>,
    metadata: Option<Json>,
}

impl Given {
    fn event(self) -> Result<(String, NewEvent), leftfold::Invalid> {
        let mut event = NewEvent::new(self.r#type, self.data)?;
        if let Some(id) = self.id {
            event = event.with_id(id)?;
        }
        if let Some(time) = self.time {
            event = event.at(time);
        }
        if let Some(metadata) = self.metadata {
            event = event.with_metadata(&metadata)?;
        }
        Ok((self.stream, event))
    }
}

/// Runs the specifications of all projections, or of one.
pub(crate) fn test(config: &Config, only: Option<&str>, out: &mut Out) -> Result<Exit, Failure> {
    let (mut passed, mut failed) = (0, 0);
    let chosen: Vec<_> = config
        .projections
        .iter()
        .filter(|projection| only.is_none_or(|only| only == projection.name))
        .collect();
    if let (Some(only), true) = (only, chosen.is_empty()) {
        return Err(Failure::new(
            Exit::Usage,
            format!("no projection is named {only:?}; see [[projection]] in {}", config.path.display()),
        ));
    }
    for projection in chosen {
        for case in cases(config, projection)? {
            let name = case.name.clone();
            let result = run(config.script(projection)?, case);
            let place = format!("{}: {name}", projection.name);
            out.element(
                &json!({ "projection": projection.name, "case": name, "failed": result.as_ref().err() }),
            )?;
            match result {
                Ok(()) => {
                    passed += 1;
                    out.line(format_args!("ok      {place}"))?;
                }
                Err(error) => {
                    failed += 1;
                    out.line(format_args!("FAILED  {place}\n\n{error}\n"))?;
                }
            }
        }
    }
    out.end_of_list()?;
    out.line(format_args!("{} passed, {failed} failed", count(passed, "case")))?;
    Ok(if failed == 0 { Exit::Done } else { Exit::No })
}

/// Returns the cases next to a script, from the file with its name and the ending `.spec.json`.
fn cases(config: &Config, projection: &ProjectionConfig) -> Result<Vec<Case>, Failure> {
    let file = beside(&config.script_file(projection));
    let failed = |error: String| Failure::new(Exit::Usage, format!("reading {}: {error}", file.display()));
    match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn beside(script: &Path) -> PathBuf {
    script.with_extension("spec.json")
}

fn run(script: Script, case: Case) -> Result<(), String> {
    let mut given = case.given.into_iter().try_fold(spec(script), |spec, given| {
        let (stream, event) = given.event()?;
        leftfold::StreamId::new(&stream)?;
        Ok::<Spec<Script>, leftfold::Invalid>(spec.given_events(stream, [event]))
    });
    let spec = given.as_mut().map_err(|invalid| invalid.to_string())?;
    if let Some(text) = &case.fails {
        spec.check_fails(text)?;
    }
    for (id, expected) in &case.then {
        spec.check(id, Some(expected).filter(|expected| !expected.is_null()))?;
    }
    spec.check_chaos()
}
