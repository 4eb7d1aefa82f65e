//! Values with their own syntax.

use std::time::Duration;

use clap::ValueEnum;
use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};

/// A duration: `1s`, `500ms`, `2h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("expected a time such as 1s or 500ms, not {text:?}"));
        let time = text.parse::<SignedDuration>().map_err(|_| wrong())?;
        Duration::try_from(time).map(Self).map_err(|_| wrong())
    }
}

/// A memory budget, in mebibytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mebibytes(pub(crate) usize);

impl Mebibytes {
    /// The process itself takes some memory.
    const MIN: usize = 64;
    const MAX: usize = 1 << 20;

    pub(crate) fn bytes(self) -> usize {
        self.0 << 20
    }
}

impl<'de> Deserialize<'de> for Mebibytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = usize::deserialize(deserializer)?;
        if (Self::MIN..=Self::MAX).contains(&number) {
            return Ok(Self(number));
        }
        let expected = format!("expected {} to {} mebibytes, not {number}", Self::MIN, Self::MAX);
        Err(serde::de::Error::custom(expected))
    }
}

/// The meaning of the revisions of ingested events.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OrderPolicy {
    /// 1, 2, 3 … without gaps
    Contiguous,
    /// Increasing, with gaps
    Latest,
    /// None: the log assigns one
    Arrival,
}

impl From<OrderPolicy> for leftfold::Policy {
    fn from(policy: OrderPolicy) -> Self {
        match policy {
            OrderPolicy::Contiguous => Self::Contiguous,
            OrderPolicy::Latest => Self::Latest,
            OrderPolicy::Arrival => Self::Arrival,
        }
    }
}
