//! The sections of the file, with their defaults.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use leftfold_server::{Listen, Token};
use serde::Deserialize;

use super::secret::Secret;
use super::value::{Mebibytes, OrderPolicy, Time};
use crate::daemon::source::{Resupply, SourceConfig};
use crate::daemon::webhook::WebhookConfig;

/// The default file.
pub(crate) const FILE: &str = "leftfold.toml";

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) store: StoreConfig,
    #[serde(default)]
    pub(crate) server: ServerConfig,
    #[serde(default)]
    pub(crate) log: LogConfig,
    #[serde(default, rename = "token")]
    pub(crate) tokens: Vec<Token>,
    #[serde(default, rename = "projection")]
    pub(crate) projections: Vec<ProjectionConfig>,
    #[serde(default, rename = "reaction")]
    pub(crate) reactions: Vec<WebhookConfig>,
    #[serde(default, rename = "source")]
    pub(crate) sources: Vec<SourceConfig>,
    pub(crate) resupply: Option<Resupply>,
    /// The path of the file. Relative paths in the file begin in its directory.
    #[serde(skip)]
    pub(crate) path: PathBuf,
}

/// The store.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreConfig {
    pub(crate) url: Secret,
}

/// The server.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) listen: SocketAddr,
    /// A separate address for health probes.
    pub(crate) health: Option<SocketAddr>,
    pub(crate) connections: usize,
    /// The limit per address; half of all if not set.
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) max_body_bytes: usize,
    /// The memory budget of the process.
    pub(crate) memory: Mebibytes,
    pub(crate) policy: OrderPolicy,
    /// `true` if ids of posted `CloudEvents` are unique only within their source.
    pub(crate) source_in_id: bool,
    pub(crate) tls: Option<TlsConfig>,
    /// Host names that requests may be addressed to, besides those of this machine.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) requests_per_second: NonZeroU32,
    /// `true` to rebuild documents at the start if the script's text has changed.
    pub(crate) rebuild_on_change: bool,
}

/// The files for TLS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7_777)),
            health: None,
            connections: 1_024,
            connections_per_address: None,
            max_body_bytes: 8 << 20,
            memory: Mebibytes(512),
            policy: OrderPolicy::Contiguous,
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
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    /// The filter, in the syntax of `RUST_LOG`, which takes precedence.
    pub(crate) filter: String,
    /// The URL of the collector for spans.
    pub(crate) opentelemetry: Option<Secret>,
    /// The service name of the spans.
    pub(crate) service_name: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        let (filter, service_name) = ("leftfold=info,warn".to_owned(), "leftfold".to_owned());
        Self { format: LogFormat::Text, filter, opentelemetry: None, service_name }
    }
}

impl LogConfig {
    /// Returns the configuration for commands that report errors themselves.
    pub(crate) fn quiet() -> Self {
        Self { filter: "error".to_owned(), ..Self::default() }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// Text, for people.
    Text,
    /// JSON, for machines.
    Json,
}

/// A projection in JavaScript.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectionConfig {
    pub(crate) name: String,
    pub(crate) script: PathBuf,
    pub(super) time_limit: Option<Time>,
    pub(super) memory_limit_mib: Option<usize>,
}
