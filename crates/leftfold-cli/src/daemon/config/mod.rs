//! The configuration file `leftfold.toml`.

mod file;
mod location;
mod read;
mod reload;
mod scripts;
mod secret;
mod value;

pub(crate) use self::file::{Config, FILE, LogConfig, LogFormat};
pub(super) use self::file::{ProjectionConfig, TlsConfig};
pub(super) use self::secret::Secret;
pub(crate) use self::value::OrderPolicy;
pub(super) use self::value::Time;
