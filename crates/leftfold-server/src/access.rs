//! Access control: bearer tokens with scopes. Only hashes of the tokens are stored.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;
use leftfold::{Error, Invalid, Kind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::{Backend, Shared};

/// A permission that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Post events and draw sequence numbers.
    Ingest,
    /// Read events and documents.
    Read,
    /// Manage tasks and parked, held, conflicting or rejected records.
    Operate,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Ingest, Self::Read, Self::Operate];

    /// Returns the name of the scope.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

impl FromStr for Scope {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| Invalid::new("scope", text, "ingest, read or operate"))
    }
}

/// A stored token: its hash and its scopes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The name that operators use for the token.
    pub name: String,
    /// The SHA-256 hash of the token, in hexadecimal.
    #[serde(deserialize_with = "hash_of")]
    pub sha256: String,
    /// The scopes that the token grants.
    pub scopes: Vec<Scope>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// Generates a token. Returns the secret, which is shown once, and the part to store.
    pub fn generate(name: impl Into<String>, scopes: Vec<Scope>) -> leftfold::Result<(String, Self)> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| {
            Error::new(
                Kind::Store,
                format!("generating a token: the system provides no random numbers: {error}"),
            )
        })?;
        let secret = format!("lf_{}", hexadecimal(&random));
        let sha256 = hash(&secret);
        Ok((secret, Self { name: name.into(), sha256, scopes }))
    }

    /// Returns whether `hash` is the token's hash. The comparison takes constant time.
    fn is(&self, hash: &str) -> bool {
        let differences =
            self.sha256.bytes().zip(hash.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
        self.sha256.len() == hash.len() && differences == 0
    }
}

/// Reads a hash. The error does not quote an invalid value, which may be the token itself.
fn hash_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?.to_ascii_lowercase();
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text);
    }
    Err(D::Error::custom("expected 64 hexadecimal digits, as printed by `leftfold token new`"))
}

fn hash(secret: &str) -> String {
    hexadecimal(&Sha256::digest(secret))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Requires the scope on a route.
pub(crate) fn guarded<S: Backend>(
    route: MethodRouter<Shared<S>>,
    scope: Scope,
    shared: &Shared<S>,
) -> MethodRouter<Shared<S>> {
    route.route_layer(from_fn_with_state((shared.clone(), scope), check::<S>))
}

async fn check<S: Backend>(
    State((shared, scope)): State<(Shared<S>, Scope)>,
    mut request: Request,
    next: Next,
) -> Response {
    match allowed(&shared.tokens, request.headers(), scope) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(Caller(caller));
            }
            next.run(request).await
        }
        Err(Refused { reason, token, problem }) => {
            shared.meters.refuse(reason, token.as_deref(), &request);
            problem.into_response()
        }
    }
}

/// An authentication that was refused.
struct Refused {
    /// The reason under which the refusal is counted.
    reason: &'static str,
    /// The name of the token, if it is a known one.
    token: Option<String>,
    problem: Box<Problem>,
}

/// Returns whether a request has a token with any scope, or needs none.
pub(crate) fn is_known(tokens: &[Token], headers: &HeaderMap) -> bool {
    Scope::ALL.into_iter().any(|scope| allowed(tokens, headers, scope).is_ok())
}

/// The name of a request's token.
#[derive(Clone)]
pub(crate) struct Caller(pub(crate) String);

/// Returns the name of the token that allows this request. Without tokens every client may do
/// everything.
fn allowed(tokens: &[Token], headers: &HeaderMap, scope: Scope) -> Result<Option<String>, Refused> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let refused = |reason, problem| Refused { reason, token: None, problem: Box::new(problem) };
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // RFC 9110: the scheme is case-insensitive.
    let secret = given.and_then(|given| given.split_once(' '));
    let secret = secret.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, secret)| secret);
    let Some(secret) = secret else {
        let problem = Problem::unauthorized("send the header Authorization: Bearer <token>");
        return Err(refused("no-token", problem));
    };
    let hash = hash(secret);
    // Compare all tokens, so that the time reveals nothing.
    let found = tokens.iter().fold(None, |found, token| if token.is(&hash) { Some(token) } else { found });
    match found {
        None => Err(refused("unknown-token", Problem::unauthorized("the token is unknown"))),
        Some(token) if token.scopes.contains(&scope) => Ok(Some(token.name.clone())),
        Some(token) => {
            let problem =
                Problem::forbidden(format!("the operation needs a token with the scope {}", scope.name()));
            Err(Refused { token: Some(token.name.clone()), ..refused("scope", problem) })
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn status(tokens: &[Token], given: &str, scope: Scope) -> u16 {
        let mut headers = HeaderMap::new();
        if !given.is_empty() {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(given).unwrap());
        }
        allowed(tokens, &headers, scope)
            .map_or_else(|refused| refused.problem.into_response().status().as_u16(), |_| 200)
    }

    #[test]
    fn a_token_allows_its_scopes_and_nothing_else() {
        let (secret, token) = Token::generate("shop", vec![Scope::Ingest]).unwrap();
        let (other, _) = Token::generate("shop", vec![Scope::Ingest]).unwrap();
        let tokens = [token];
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(status(&tokens, &format!("{scheme} {secret}"), Scope::Ingest), 200, "{scheme}");
        }
        assert_eq!(status(&tokens, &format!("Bearer {secret}"), Scope::Read), 403);
        for wrong in [
            String::new(),
            secret.clone(),
            format!("Basic {secret}"),
            format!("Bearer {other}"),
            "Bearer ".into(),
        ] {
            assert_eq!(status(&tokens, &wrong, Scope::Ingest), 401, "{wrong}");
        }
        assert_eq!(status(&[], "", Scope::Operate), 200);
    }

    #[test]
    fn what_is_no_hash_is_refused_and_not_repeated() {
        let read = |hash: &str| {
            serde_json::from_value::<Token>(json!({ "name": "shop", "sha256": hash, "scopes": ["read"] }))
        };
        let (secret, token) = Token::generate("shop", vec![Scope::Read]).unwrap();
        let tokens = [read(&token.sha256.to_uppercase()).unwrap()];
        assert_eq!(status(&tokens, &format!("Bearer {secret}"), Scope::Read), 200);
        for wrong in [&secret, &token.sha256[1..], &"z".repeat(64), ""] {
            let message = read(wrong).unwrap_err().to_string();
            assert!(message.contains("64 hexadecimal digits") && !message.contains(&secret), "{message}");
        }
    }

    #[test]
    fn a_secret_is_shown_once() {
        let (secret, token) = Token::generate("shop", Scope::ALL.to_vec()).unwrap();
        let kept = format!("{token:?} {}", serde_json::to_string(&token).unwrap());
        assert!(secret.len() > 60 && !kept.contains(&secret), "{kept}");
    }
}
