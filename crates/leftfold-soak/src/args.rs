//! The command-line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Drive the daemon with hostile scripts, requests, files, clocks and kills beside a bystander
#[derive(Debug, Parser)]
#[command(name = "leftfold-soak")]
pub(crate) struct Args {
    /// Run this daemon binary
    #[arg(long)]
    pub(crate) daemon: PathBuf,
    /// Run for this long, all stores together
    #[arg(long, default_value = "30", value_parser = minutes)]
    pub(crate) minutes: Duration,
    /// Use only this store (default: both, half the time each)
    #[arg(long)]
    pub(crate) store: Option<Store>,
    /// Seed all random choices with this number
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Check only data, memory and a response time of five seconds, no latency ratio and no growth
    #[arg(long)]
    pub(crate) quick: bool,
    /// Do not change the daemon's clock
    #[arg(long)]
    pub(crate) no_clocks: bool,
    /// Write the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Mongodb,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Mongodb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Mongodb => "mongodb",
        }
    }
}

/// Parses a number of minutes. Less than twenty seconds would measure nothing.
fn minutes(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected minutes from 0.33 to 1440, not {text:?}");
    let minutes: f64 = text.parse().map_err(|_| wrong())?;
    if (0.33..=1440.0).contains(&minutes) {
        Ok(Duration::from_secs_f64(minutes * 60.0))
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_numbers_within_reason() {
        assert_eq!(minutes("0.5"), Ok(Duration::from_secs(30)));
        assert_eq!(minutes("30"), Ok(Duration::from_mins(30)));
        for wrong in ["", "ten", "0", "-1", "inf", "NaN", "100000"] {
            assert!(minutes(wrong).is_err(), "{wrong}");
        }
    }
}
