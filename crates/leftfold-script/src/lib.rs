//! Projections in JavaScript: an object of functions by event type, each from a document and an event to the next document.
//!
//! ```
//! use leftfold::testing::spec;
//! use leftfold::{Json, NewEvent};
//! use leftfold_script::{Limits, Script};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let carts = Script::compile("carts", "carts.js", Limits::default(), r#"
//!     export default {
//!       "cart-opened": (_, event) => ({ client: event.data.client, items: 0 }),
//!       "item-added": (cart, event) => ({ ...cart, items: cart.items + event.data.quantity }),
//!       "cart-canceled": () => null,
//!     };
//! "#)?;
//! let event = |kind, data| NewEvent::new(kind, Json::parse(data)?);
//! spec(carts)
//!     .given_events("cart-42", [event("cart-opened", r#"{"client":"ann"}"#)?, event("item-added", r#"{"quantity":2}"#)?])
//!     .then("cart-42", serde_json::json!({ "client": "ann", "items": 2 }))
//!     .holds_under_chaos();
//! # Ok(()) }
//! ```
//!
//! A module may export more:
//!
//! - `route`, a function from an event to the id of the document it belongs to, an array of ids, or `null`; without it, that is the event's stream;
//! - `version`, a number, for people; 1 if it is not there. Documents have to be made anew whenever the text of the script is another one.
//!
//! An event is `{ id, stream, revision, type, time, data, metadata }`, its time a text such as `2026-01-01T00:00:00Z`. A document that is not there
//! is `undefined`, so that a parameter can have a default. What a function returns is the next document: an object, or `null` for none. Events of types that
//! are not named pass by.
//!
//! **Deterministic**: there is no clock, no chance, no zone of the machine, no file and no network: `Date.now()` and the like throw. Variables of a
//! module would live from event to event, in one process; [contract checks](leftfold::testing::Spec::holds_under_chaos) find scripts that use such.
//!
//! **Bounded**: a call that takes too long or too much memory fails as one that throws does. Numbers are those of JavaScript: whole ones are exact up to
//! 2⁵³.

mod engine;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::fold::{self, Ids};
use leftfold::{Event, EventKind, Invalid, Json, Projection, Route};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::engine::{Engine, Exports};

/// What one call of a script may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run; a second if not said.
    pub time: Duration,
    /// How much memory the engine may take with all that the script keeps, in bytes; 64 MiB if not said.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(1), memory: 64 << 20 }
    }
}

/// Why a script could not be compiled, or a function of it failed: the message, and where in the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    message: String,
    is_limit: bool,
    is_transient: bool,
}

impl Fault {
    pub(crate) fn new(message: String) -> Self {
        Self { message, is_limit: false, is_transient: false }
    }

    pub(crate) fn limit(message: String, is_transient: bool) -> Self {
        Self { message, is_limit: true, is_transient }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// A projection in JavaScript.
///
/// Its engine is made once and called by one thread at a time; after a call that ran into a limit it is made anew.
#[derive(Clone)]
pub struct Script {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    file: String,
    source: String,
    /// The version of its code: what it exports, and a hash of its text.
    version: String,
    limits: Limits,
    exports: Exports,
    engine: Mutex<Option<Engine>>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, file, exports, .. } = &*self.inner;
        f.debug_struct("Script")
            .field("name", name)
            .field("file", file)
            .field("exports", exports)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// Compiles a script under the name of its projection. The file is the one that errors name.
    pub fn compile(
        name: impl Into<String>,
        file: impl Into<String>,
        limits: Limits,
        source: impl Into<String>,
    ) -> Result<Self, Fault> {
        let (file, source) = (file.into(), source.into());
        let engine = Engine::new(&file, &source, limits)?;
        let exports = engine.exports.clone();
        let engine = Mutex::new(Some(engine));
        let digest = Sha256::digest(&source);
        let hash = u64::from_be_bytes(std::array::from_fn(|at| digest[at]));
        let version = format!("{}-{hash:016x}", exports.version);
        let name = name.into();
        Ok(Self { inner: Arc::new(Inner { name, file, source, version, limits, exports, engine }) })
    }

    /// The version that the script exports; 1 if it does not.
    pub fn version(&self) -> u32 {
        self.inner.exports.version
    }

    /// The types of events that it has functions for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.inner.exports.types.iter().map(String::as_str)
    }
}

impl Inner {
    fn call<T>(&self, call: impl FnOnce(&Engine) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut kept = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = match kept.take() {
            Some(engine) => engine,
            None => Engine::new(&self.file, &self.source, self.limits)?,
        };
        let answer = call(&engine);
        // What was cut off may have left anything behind.
        if !answer.as_ref().is_err_and(|fault| fault.is_limit) {
            *kept = Some(engine);
        }
        answer
    }

    fn has(&self, kind: &EventKind) -> bool {
        self.exports.types.iter().any(|one| one == kind.as_str())
    }

    fn route(&self, event: &Event<Json>) -> Result<Ids, Invalid> {
        let wrong = |error: &dyn fmt::Display| Invalid::new("route", "", error.to_string());
        let event = text(event).map_err(|error| wrong(&error))?;
        let ids = self.call(|engine| engine.route(&event)).map_err(|fault| wrong(&fault))?;
        Ids::many(ids)
    }
}

impl Projection for Script {
    type Event = Json;
    type Document = Json;

    fn name(&self) -> &str {
        &self.inner.name
    }

    /// The version that it exports and a hash of its text: another script has another version, also if only a comment differs.
    fn version(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.inner.version)
    }

    fn concerns(&self, kind: &EventKind) -> bool {
        self.inner.has(kind)
    }

    fn route(&self) -> Route<Json> {
        if !self.inner.exports.routes {
            return Route::Stream;
        }
        let inner = Arc::clone(&self.inner);
        Route::by(move |event| inner.route(event))
    }

    fn fold(&self, document: Option<Json>, event: &Event<Json>) -> Result<Option<Json>, fold::Error> {
        let shown = text(event)?;
        let document = document.as_ref().map(Json::as_str);
        let folded = self.inner.call(|engine| engine.fold(event.kind.as_str(), document, &shown));
        match folded {
            Ok(folded) => Ok(folded.map(Json::stored)),
            Err(fault) if fault.is_transient => Err(fold::Error::transient(fault.message)),
            Err(fault) => Err(fold::Error::new(fault.message)),
        }
    }
}

/// An event as a script sees it.
#[derive(Serialize)]
struct Shown<'e> {
    id: &'e str,
    stream: &'e str,
    revision: u64,
    #[serde(rename = "type")]
    kind: &'e str,
    time: String,
    data: &'e Json,
    metadata: Option<&'e Json>,
}

fn text(event: &Event<Json>) -> Result<String, fold::Error> {
    let shown = Shown {
        id: event.id.as_str(),
        stream: event.stream.as_str(),
        revision: event.revision.0,
        kind: event.kind.as_str(),
        time: event.time.to_string(),
        data: &event.data,
        metadata: event.metadata.as_ref(),
    };
    serde_json::to_string(&shown).map_err(|error| fold::Error::new(error.to_string()))
}
