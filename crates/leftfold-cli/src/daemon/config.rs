//! The configuration file `leftfold.toml`.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use leftfold_script::{Script, ScriptLimits};
use leftfold_server::{Listen, Token};
use serde::{Deserialize, Deserializer};

use super::source::{Described, Resupply};
use super::webhook::Called;
use super::workers::workers;
use crate::exit::{Exit, Failure};

/// The default file.
pub(crate) const FILE: &str = "leftfold.toml";

/// The allowed memory limits of a script in MiB, and its maximum time limit per event.
const MEMORY_MIB: RangeInclusive<usize> = 1..=4_096;
const MAX_DURATION: Duration = Duration::from_hours(1);

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) store: Store,
    #[serde(default)]
    pub(crate) server: Server,
    #[serde(default)]
    pub(crate) log: Log,
    #[serde(default, rename = "token")]
    pub(crate) tokens: Vec<Token>,
    #[serde(default, rename = "projection")]
    pub(crate) projections: Vec<Projection>,
    #[serde(default, rename = "reaction")]
    pub(crate) reactions: Vec<Called>,
    #[serde(default, rename = "source")]
    pub(crate) sources: Vec<Described>,
    pub(crate) resupply: Option<Resupply>,
    /// The directory of the file. Relative paths in the file begin there.
    #[serde(skip)]
    pub(super) directory: PathBuf,
}

/// The store.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) url: Secret,
}

/// The server.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    /// A separate address for health probes.
    pub(crate) health: Option<SocketAddr>,
    pub(crate) connections: usize,
    /// The limit per address; half of all if not set.
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) max_body_bytes: usize,
    /// The memory budget of the process.
    pub(crate) memory: Mebibytes,
    pub(crate) policy: Policy,
    /// `true` if ids of posted `CloudEvents` are unique only within their source.
    pub(crate) source_in_id: bool,
    pub(crate) tls: Option<Tls>,
    /// Host names that requests may be addressed to, besides those of this machine.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) requests_per_second: NonZeroU32,
    /// `true` to rebuild documents at the start if the script's text has changed.
    pub(crate) rebuild_on_change: bool,
}

/// The files for TLS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7_777)),
            health: None,
            connections: 1_024,
            connections_per_address: None,
            max_body_bytes: 8 << 20,
            memory: Mebibytes(512),
            policy: Policy::Contiguous,
            source_in_id: false,
            tls: None,
            hosts: None,
            requests_per_second: Listen::default().requests_per_second,
            rebuild_on_change: false,
        }
    }
}

/// The configuration of the log.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: Format,
    /// The filter, in the syntax of `RUST_LOG`, which takes precedence.
    pub(crate) filter: String,
    /// The URL of the collector for spans.
    pub(crate) opentelemetry: Option<Secret>,
    /// The service name of the spans.
    pub(crate) service_name: String,
}

impl Default for Log {
    fn default() -> Self {
        let (filter, service_name) = ("leftfold=info,warn".to_owned(), "leftfold".to_owned());
        Self { format: Format::Text, filter, opentelemetry: None, service_name }
    }
}

impl Log {
    /// Returns the configuration for commands that report errors themselves.
    pub(crate) fn quiet() -> Self {
        Self { filter: "error".to_owned(), ..Self::default() }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// Text, for people.
    Text,
    /// JSON, for machines.
    Json,
}

/// The ordering of posted events.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    Contiguous,
    Latest,
    Arrival,
}

impl From<Policy> for leftfold::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Contiguous => Self::Contiguous,
            Policy::Latest => Self::Latest,
            Policy::Arrival => Self::Arrival,
        }
    }
}

/// A projection in JavaScript.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Projection {
    pub(crate) name: String,
    pub(crate) script: PathBuf,
    time_limit: Option<Time>,
    memory_limit_mib: Option<usize>,
}

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
        #[serde(untagged, expecting = "a text, or { file = \"…\" }")]
        enum Said {
            Text(String),
            File { file: PathBuf },
        }
        Ok(match Said::deserialize(deserializer)? {
            Said::Text(text) => Self::Text(expanded(&text).map_err(serde::de::Error::custom)?),
            Said::File { file } => Self::File(file),
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

/// A duration: `1s`, `500ms`, `2h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("{text:?} is no time such as 1s or 500ms"));
        let time = text.parse::<SignedDuration>().map_err(|_| wrong())?;
        Duration::try_from(time).map(Self).map_err(|_| wrong())
    }
}

/// All keys that have values.
const KEYS: &str = "\
    ack_wait after allow attempts authorization batch certificate concurrency connections \
    consumer content durable every file filter first format from_now group health hosts key \
    listen mapping max_body_bytes memory memory_limit_mib most name on on_new_version \
    opentelemetry options policy prefetch queue rebuild_on_change requests_per_second retry \
    scopes script secret service_name sha256 source_in_id stream take_over_after time_limit timeout tls \
    topics type url version waits watch when window within";

/// Returns the key of a line that is not TOML. Other words may be part of a secret, and are not
/// repeated.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let last = key.rsplit('.').next()?.trim();
    KEYS.split(' ').any(|known| known == last).then_some(key)
}

/// A memory budget, in mebibytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mebibytes(pub(crate) usize);

impl Mebibytes {
    /// The process itself takes some memory.
    const LEAST: usize = 64;
    const MOST: usize = 1 << 20;

    pub(crate) fn bytes(self) -> usize {
        self.0 << 20
    }
}

impl<'de> Deserialize<'de> for Mebibytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = usize::deserialize(deserializer)?;
        if (Self::LEAST..=Self::MOST).contains(&number) {
            return Ok(Self(number));
        }
        let expected = format!("{} to {} mebibytes were expected, not {number}", Self::LEAST, Self::MOST);
        Err(serde::de::Error::custom(expected))
    }
}

impl Config {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let hint = "make one with `leftfold init`, or name one with --config";
            Failure::new(Exit::Usage, format!("reading {}: {error}; {hint}", file.display()))
        })?;
        let mut config = Self::parse(&text)
            .map_err(|wrong| Failure::new(Exit::Usage, format!("reading {}: {wrong}", file.display())))?;
        config.directory = file.parent().map(Path::to_owned).unwrap_or_default();
        Ok(config)
    }

    /// Parses the file. Errors name the line and the key, but not the value, which may be secret.
    fn parse(text: &str) -> Result<Self, String> {
        let told = |error: &toml::de::Error, path: Option<String>| {
            let said = error.message();
            let Some(span) = error.span() else {
                return path.map_or_else(|| said.to_owned(), |path| format!("{path}: {said}"));
            };
            let before = text.get(..span.start).unwrap_or(text);
            let start = before.rfind('\n').map_or(0, |end| end + 1);
            let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
            let number = before.matches('\n').count() + 1;
            match path.or_else(|| key_of(line).map(str::to_owned)) {
                Some(key) => format!("line {number}, {key}: {said}"),
                None => format!("line {number}: {said}"),
            }
        };
        let read = toml::Deserializer::parse(text).map_err(|error| told(&error, None))?;
        serde_path_to_error::deserialize(read).map_err(|error| {
            let path = error.path().to_string();
            told(error.inner(), Some(path).filter(|path| path != "."))
        })
    }

    /// Checks that this configuration can replace the previous one without a restart.
    pub(super) fn can_follow(&self, before: &Self) -> Result<(), Failure> {
        let store = |config: &Self| config.reveal("the store's URL", &config.store.url);
        let key = if store(self)? != store(before)? {
            "store.url"
        } else if self.server.listen != before.server.listen {
            "server.listen"
        } else if self.server.health != before.server.health {
            "server.health"
        } else {
            let Server { connections, memory, .. } = self.server;
            if (connections, memory) != (before.server.connections, before.server.memory)
                || self.log != before.log
            {
                tracing::warn!(
                    "server.connections, server.memory and [log] stay as they are until a restart"
                );
            }
            return Ok(());
        };
        Err(Failure::new(Exit::Usage, format!("{key}: it is another one than before, which takes a restart")))
    }

    /// Returns the content of a secret.
    pub(crate) fn reveal(&self, what: &str, secret: &Secret) -> Result<String, Failure> {
        match secret {
            Secret::Text(text) => Ok(text.clone()),
            Secret::File(file) => {
                let file = self.found(file);
                let read = std::fs::read_to_string(&file);
                let failed = |error| {
                    Failure::new(Exit::Usage, format!("reading {what} from {}: {error}", file.display()))
                };
                Ok(read.map_err(failed)?.trim_end().to_owned())
            }
        }
    }

    /// Resolves a path relative to the configuration file.
    pub(crate) fn found(&self, named: &Path) -> PathBuf {
        self.directory.join(named)
    }

    /// Returns the path of a script.
    pub(crate) fn script_file(&self, projection: &Projection) -> PathBuf {
        self.found(&projection.script)
    }

    /// Compiles all projections.
    pub(crate) fn scripts(&self) -> Result<Vec<Script>, Failure> {
        self.scripts_after(&[])
    }

    /// Compiles all projections, and reuses unchanged scripts of `before`.
    pub(super) fn scripts_after(&self, before: &[Script]) -> Result<Vec<Script>, Failure> {
        self.projections.iter().map(|projection| self.script_after(projection, before)).collect()
    }

    /// Compiles one projection.
    pub(crate) fn script(&self, projection: &Projection) -> Result<Script, Failure> {
        self.script_after(projection, &[])
    }

    fn script_after(&self, projection: &Projection, before: &[Script]) -> Result<Script, Failure> {
        let Projection { name, script, time_limit, memory_limit_mib } = projection;
        let file = self.script_file(projection);
        let failed = |said: String| {
            Failure::new(Exit::Usage, format!("projection {name}: {}: {said}", file.display()))
        };
        let wrong = |key: &str, expected: &str| {
            Failure::new(Exit::Usage, format!("projection {name}: {key}: expected {expected}"))
        };
        // Engines treat 0, and a number that overflows, as no limit at all.
        let memory = match memory_limit_mib.map(|mib| (mib, mib.checked_mul(1 << 20))) {
            None => ScriptLimits::default().memory,
            Some((mib, Some(bytes))) if MEMORY_MIB.contains(&mib) => bytes,
            Some(_) => return Err(wrong("memory_limit_mib", "1 to 4096")),
        };
        let time = match time_limit {
            None => ScriptLimits::default().time,
            Some(Time(time)) if !time.is_zero() && *time <= MAX_DURATION => *time,
            Some(_) => return Err(wrong("time_limit", "more than 0s, and at most 1h")),
        };
        let source = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        let limits = ScriptLimits { time, memory };
        let shown = script.display().to_string();
        if let Some(same) = before.iter().find(|script| script.is_made_of(name, &shown, limits, &source)) {
            return Ok(same.clone());
        }
        Script::compile_in(workers(), name, shown, limits, source).map_err(|fault| failed(fault.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Config::parse(text).map(drop).unwrap_err()
    }

    #[test]
    fn errors_name_the_line_the_key_and_what_was_expected() {
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[server]\nlisten = \"here\"\n");
        assert!(
            said.contains("line 4") && said.contains("listen") && said.contains("socket address"),
            "{said}"
        );
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[[projection]]\nname = \"a\"\nscrpt = \"a.js\"\n");
        assert!(said.contains("line 5") && said.contains("scrpt") && said.contains("`script`"), "{said}");
        for line in ["listen=1", "  listen = 1", "\tlisten =1", "listen = [", "  listen=\"", "connections=0x"]
        {
            let said = wrong(&format!("[store]\nurl = \"sqlite:a.db\"\n[server]\n{line}\n"));
            let key = line.trim_start().split(['=', ' ']).next().unwrap_or_default();
            assert!(said.contains("line 4") && said.contains(key), "{line}: {said}");
        }
        let token = "[store]\nurl = \"a\"\n[[token]]\nname = \"shop\"\n";
        for line in ["sha256=\"00\"", " sha256 = 256", "sha256 ="] {
            let said = wrong(&format!("{token}{line}\nscopes = []\n"));
            assert!(said.contains("line 5") && said.contains("sha256"), "{line}: {said}");
        }
        let said = wrong("store.url = \"a\"\nserver = { listen=\"here\" }\n");
        assert!(said.contains("line 2") && said.contains("server.listen"), "{said}");
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[server]\nmemory = 8\n");
        assert!(said.contains("line 4, server.memory: 64 to 1048576 mebibytes"), "{said}");
        let said = wrong("[store]\nurl = \"${LEFTFOLD_NO_SUCH_VARIABLE}\"\n");
        assert!(said.contains("line 2") && said.contains("LEFTFOLD_NO_SUCH_VARIABLE"), "{said}");
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let config: Config = toml::from_str("[store]\nurl = \"mongodb://ann:hidden@host/shop\"\n").unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
        for text in [
            "[store]\nurl = \"mongodb://ann:hidden@host/shop\n",
            "[store]\nurl = mongodb://ann:hidden@host/shop\n",
            "[store]\nurl = [\"hidden\"]\n",
            "[store]\nurl = \"\"\"mongodb://\nHidden==\nhidden",
            "[store]\nurl = { fiel = \"hidden\" }\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nsecret = [\nhidden=\n",
            "[store]\nurl = \"hidden\"\"hidden\"\n",
            "[store]\nurl = \"a\"\n[[token]]\nname = \"shop\"\nsha256 = \"lf_hidden\"\nscopes = []\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nname = \"a\"\non = \"a\"\nurl = \"a\"\nsecret = 'hidden\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nname = \"a\"\non = \"a\"\nurl = \"a\"\nsecret = [\"hidden\"]\n",
        ] {
            let said = wrong(text);
            assert!(said.contains("line ") && !said.contains("hidden"), "{said}");
        }
    }
}
