//! `leftfold token`: tokens for clients of the server.

use leftfold_server::{Scope, Token};
use leftfold_terminal::{Exit, Failure, Out};
use serde_json::json;

use super::FILE;

/// `leftfold token new`: creates a token, shows it once, and prints the lines for the file.
pub(crate) fn new_token(name: &str, scopes: &[Scope], out: &mut Out) -> Result<Exit, Failure> {
    let scopes = if scopes.is_empty() { Scope::ALL.to_vec() } else { scopes.to_vec() };
    let (secret, token) = Token::generate(name, scopes)?;
    out.value(&json!({ "secret": secret, "token": token }))?;
    let scopes: Vec<_> = token.scopes.iter().map(|scope| format!("\"{}\"", scope.name())).collect();
    out.line(format_args!("the token, printed only once:\n\n  {secret}\n\nadd to {FILE}:\n"))?;
    out.line(format_args!(
        "[[token]]\nname = {:?}\nsha256 = \"{}\"\nscopes = [{}]",
        token.name,
        token.sha256,
        scopes.join(", ")
    ))?;
    Ok(Exit::Done)
}
