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
mod webhook;
mod workers;

use std::ffi::OsString;

use leftfold_server::{Scope, Token};
use serde_json::json;

pub(crate) use self::allocator::fix_thresholds;
pub(crate) use self::config::{Config, FILE, Format, Log};
pub(crate) use self::doctor::examine;
pub(crate) use self::init::init;
pub(crate) use self::prepared::check;
pub(crate) use self::serve::serve;
pub(crate) use self::specs::test;
pub(crate) use self::workers::run_if_started_as_worker;
use crate::exit::{Exit, Failure};
use crate::output::Out;
use crate::place::{File, Named};

impl Config {
    /// Returns the store that the file names.
    pub(crate) fn place(&self) -> Result<Named, Failure> {
        let url = self.reveal("the store's URL", &self.store.url)?;
        Ok(match Named::from(OsString::from(url)) {
            Named::File(File(path)) => Named::File(File(self.directory.join(path))),
            other => other,
        })
    }
}

/// `leftfold token new`: creates a token, shows it once, and prints the lines for the file.
pub(crate) fn new_token(name: &str, scopes: &[Scope], out: &mut Out) -> Result<Exit, Failure> {
    let scopes = if scopes.is_empty() { Scope::ALL.to_vec() } else { scopes.to_vec() };
    let (secret, token) = Token::generate(name, scopes)?;
    out.value(&json!({ "secret": secret, "token": token }))?;
    let scopes: Vec<_> = token.scopes.iter().map(|scope| format!("\"{}\"", scope.name())).collect();
    out.line(format_args!("the token, which is shown only now:\n\n  {secret}\n\nput into {FILE}:\n"))?;
    out.line(format_args!(
        "[[token]]\nname = {:?}\nsha256 = \"{}\"\nscopes = [{}]",
        token.name,
        token.sha256,
        scopes.join(", ")
    ))?;
    Ok(Exit::Done)
}
