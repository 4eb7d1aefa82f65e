//! What is told of what happens: lines on standard error, and spans to a collector, if the file names one.

#[cfg(feature = "opentelemetry")]
mod spans;

use std::io::{self, IsTerminal as _};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

#[cfg(feature = "opentelemetry")]
use self::spans::Spans;
use crate::daemon::{Config, Format, Log};
use crate::exit::{Exit, Failure};

/// What has to be brought to its end.
#[must_use]
pub(crate) struct Logs {
    #[cfg(feature = "opentelemetry")]
    spans: Option<Spans>,
}

/// For commands that say what went wrong themselves.
pub(crate) fn quiet() -> Result<(), Failure> {
    Registry::default().with(lines(&Log::quiet())?).init();
    Ok(())
}

/// For the daemon, as its file says.
pub(crate) fn start(config: &Config) -> Result<Logs, Failure> {
    let registry = Registry::default().with(lines(&config.log)?);
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

/// The filter of the file.
pub(crate) fn filter(log: &Log) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(&log.filter).map_err(|error| {
        let message = format!("log.filter: {error}; write such as \"warn\" or \"leftfold=debug,warn\"");
        Failure::new(Exit::Usage, message)
    })
}

/// Lines on standard error: `RUST_LOG=leftfold=debug leftfold …` shows more of them.
fn lines(log: &Log) -> Result<impl Layer<Registry>, Failure> {
    let of_the_file = filter(log)?;
    let filter = EnvFilter::try_from_default_env().unwrap_or(of_the_file);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines = match log.format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    Ok(lines.with_filter(filter))
}

impl Logs {
    /// Sends what is left.
    #[cfg_attr(
        not(feature = "opentelemetry"),
        expect(clippy::unused_async, reason = "there is nothing to send")
    )]
    pub(crate) async fn end(self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(spans) = self.spans {
            spans.end().await;
        }
    }
}

impl Config {
    /// The collector that the file names.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn collector(&self) -> Result<Option<Spans>, Failure> {
        let Some(url) = &self.log.opentelemetry else { return Ok(None) };
        let url = self.reveal("log.opentelemetry", url)?;
        Spans::new(&url, &self.log.service_name).map(Some)
    }

    /// There can't be one.
    #[cfg(not(feature = "opentelemetry"))]
    pub(crate) fn collector(&self) -> Result<(), Failure> {
        let Log { opentelemetry, service_name: _, .. } = &self.log;
        match opentelemetry {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                Exit::Usage,
                "log.opentelemetry: this program was built without it; build it again with --features opentelemetry",
            )),
        }
    }
}
