//! Values that may be secret.

use std::fmt;
use std::path::PathBuf;

use leftfold_terminal::{Exit, Failure};
use serde::{Deserialize, Deserializer};

use super::Config;

/// A text in which `${NAME}` is replaced by an environment variable, or a file that contains it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    Text(String),
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a text or { file = \"…\" }")]
        enum SecretValue {
            Text(String),
            File { file: PathBuf },
        }
        Ok(match SecretValue::deserialize(deserializer)? {
            SecretValue::Text(text) => Self::Text(expanded(&text).map_err(serde::de::Error::custom)?),
            SecretValue::File { file } => Self::File(file),
        })
    }
}

/// Expands environment variables.
fn expanded(text: &str) -> Result<String, String> {
    let mut parts = text.split("${");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((name, rest)) = part.split_once('}') else {
            return Err("`${` without `}`; write ${NAME}".to_owned());
        };
        match std::env::var(name) {
            Ok(value) => whole.push_str(&value),
            Err(_) => return Err(format!("the environment has no variable {name}")),
        }
        whole.push_str(rest);
    }
    Ok(whole)
}

impl Config {
    /// Returns the content of a secret.
    pub(crate) fn reveal(&self, name: &str, secret: &Secret) -> Result<String, Failure> {
        match secret {
            Secret::Text(text) => Ok(text.clone()),
            Secret::File(file) => {
                let file = self.resolve(file);
                let read = std::fs::read_to_string(&file);
                let failed = |error| {
                    Failure::new(Exit::Usage, format!("reading {name} from {}: {error}", file.display()))
                };
                Ok(read.map_err(failed)?.trim_end().to_owned())
            }
        }
    }
}
