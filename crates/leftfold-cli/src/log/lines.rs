//! Sets up the log: its filter, its format, and the layer for spans.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};

use leftfold_terminal::{Exit, Failure};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

#[cfg(feature = "opentelemetry")]
use super::spans::Spans;
use crate::daemon::{Config, LogConfig, LogFormat};

/// Exporters to shut down at the end.
#[must_use]
pub(crate) struct Logs {
    #[cfg(feature = "opentelemetry")]
    spans: Option<Spans>,
}

/// Sets up logging for commands that report errors themselves.
pub(crate) fn quiet() -> Result<(), Failure> {
    Registry::default().with(lines(&LogConfig::quiet())?).init();
    Ok(())
}

/// Sets up logging for the daemon, as configured.
pub(crate) fn start(config: &Config) -> Result<Logs, Failure> {
    let registry = Registry::default().with(lines(&config.log)?);
    log_panics();
    #[cfg(feature = "opentelemetry")]
    {
        let spans = config.collector()?;
        registry.with(spans.as_ref().map(Spans::layer)).init();
        Ok(Logs { spans })
    }
    #[cfg(not(feature = "opentelemetry"))]
    {
        config.collector()?;
        registry.init();
        Ok(Logs {})
    }
}

/// Logs panics like everything else, so that lines of JSON stay lines of JSON.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let reason = panic.payload_as_str().unwrap_or("unknown");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        // Only if the environment asks for it.
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(
            reason,
            place,
            thread = thread.name().unwrap_or_default(),
            backtrace,
            "a thread panicked; this is a bug"
        );
    }));
}

/// Returns the configured filter.
pub(crate) fn filter(log: &LogConfig) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(&log.filter).map_err(|error| {
        let message =
            format!("log.filter: {error}; expected a filter such as \"warn\" or \"leftfold=debug,warn\"");
        Failure::new(Exit::Usage, message)
    })
}

/// Writes lines to standard error: `RUST_LOG=leftfold=debug leftfold …` shows more of them.
fn lines(log: &LogConfig) -> Result<impl Layer<Registry>, Failure> {
    let configured = filter(log)?;
    let filter = EnvFilter::try_from_default_env().unwrap_or(configured);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    Ok(lines.with_filter(filter))
}

impl Logs {
    /// Sends the remaining spans.
    #[cfg_attr(
        not(feature = "opentelemetry"),
        expect(clippy::unused_async, reason = "this build sends no spans")
    )]
    pub(crate) async fn end(self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(spans) = self.spans {
            spans.end().await;
        }
    }
}

impl Config {
    /// Returns the configured collector.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn collector(&self) -> Result<Option<Spans>, Failure> {
        let Some(url) = &self.log.opentelemetry else { return Ok(None) };
        let url = self.reveal("log.opentelemetry", url)?;
        Spans::new(&url, &self.log.service_name).map(Some)
    }

    /// Checks that no collector is configured: this build has no support for one.
    #[cfg(not(feature = "opentelemetry"))]
    pub(crate) fn collector(&self) -> Result<(), Failure> {
        let LogConfig { opentelemetry, service_name: _, .. } = &self.log;
        match opentelemetry {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                Exit::Usage,
                "log.opentelemetry: this program was built without OpenTelemetry; build it with --features opentelemetry",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::panic::catch_unwind;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_a_line_of_the_log() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = Registry::default().with(fmt::layer().json().with_writer(move || writer.clone()));
        let before = std::panic::take_hook();
        log_panics();
        let panicked =
            tracing::subscriber::with_default(subscriber, || catch_unwind(|| panic!("two\nlines of \"it\"")));
        std::panic::set_hook(before);
        assert!(panicked.is_err());
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["fields"]["reason"], "two\nlines of \"it\"", "{line}");
        assert!(line["fields"]["place"].as_str().unwrap().contains("lines.rs"), "{line}");
    }
}
