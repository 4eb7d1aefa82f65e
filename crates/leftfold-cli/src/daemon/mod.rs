//! The daemon, which serves the configuration of `leftfold.toml` over HTTP.

mod allocator;
mod broker;
mod config;
mod doctor;
mod init;
mod prepared;
mod serve;
mod source;
mod specs;
mod token;
mod webhook;
mod workers;

pub(crate) use self::allocator::fix_thresholds;
pub(crate) use self::config::{Config, FILE, LogConfig, LogFormat, OrderPolicy};
pub(crate) use self::doctor::examine;
pub(crate) use self::init::init;
pub(crate) use self::prepared::check;
pub(crate) use self::serve::serve;
pub(crate) use self::specs::test;
pub(crate) use self::token::new_token;
pub(crate) use self::workers::run_if_started_as_worker;
