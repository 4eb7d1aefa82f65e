//! Projections in JavaScript: an object of functions by event type. Each function takes a document
//! and an event, and returns the next document.
//!
//! ```
//! use leftfold::testing::spec;
//! use leftfold::{Json, NewEvent};
//! use leftfold_script::{ScriptLimits, Script};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let carts = Script::compile("carts", "carts.js", ScriptLimits::default(), r#"
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
//! A module may also export:
//!
//! - `route`, a function from an event to a document id, an array of ids, or `null`. Without it,
//!   the id is the event's stream.
//! - `version`, a number for people. The default is 1. Any change of the script's text requires a
//!   rebuild of the documents.
//!
//! An event is `{ id, stream, revision, type, time, data, metadata }`. Its time is a text such as
//! `2026-01-01T00:00:00Z`. A missing document is `undefined`, so a parameter can have a default. A
//! function returns the next document: an object, or `null` for none. Events of other types are
//! ignored.
//!
//! **Deterministic**: scripts have no clock, random numbers, local time zone, files or network, and
//! `Date.now()` and the like throw. Variables of a module would live from event to event, in one
//! process. [Contract checks](leftfold::testing::Spec::holds_under_chaos) find scripts that use
//! them.
//!
//! **Bounded**: a call that takes too much processor time or memory fails like one that throws.
//! Numbers are those of JavaScript: whole ones are exact up to 2⁵³. Larger ones are passed on
//! exactly, and a script that calculates with them fails.
//!
//! # Contained
//!
//! [`Script::compile`] runs a script in this process, where the engine enforces the limits as far
//! as it can. Some calls, such as `text.includes(…)` on long texts, are one step to the engine and
//! can't be interrupted. [`Script::compile_in`] runs a script in [worker processes](Workers) that
//! can be killed. The daemon does so.

mod engine;
mod pool;
mod process;
mod remote;
mod wire;
mod worker;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::fold::{self, Bulk, DocumentIds, Folded, Upcoming};
use leftfold::{Event, EventKind, Invalid, Json, Projection, Route};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use self::engine::{Engine, Exports};
pub use self::pool::Workers;
use self::remote::{Extent, Item, Remote};
use self::wire::{Record, Source};
pub use self::worker::run_worker;

/// Limits for one call of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// The maximum processor time. The default is a second. Time spent by other processes does not
    /// count.
    pub time: Duration,
    /// The maximum memory of the engine with everything the script keeps, in bytes. The default is
    /// 64 MiB.
    pub memory: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(1), memory: 64 << 20 }
    }
}

/// The error of a script that does not compile, or of a function that failed: the message and the
/// place in the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFault {
    message: String,
    is_limit: bool,
}

impl ScriptFault {
    pub(crate) fn new(message: String) -> Self {
        Self { message, is_limit: false }
    }

    pub(crate) fn limit(message: String) -> Self {
        Self { message, is_limit: true }
    }
}

/// Returns the message for a call that took too much processor time.
pub(crate) fn too_long(limits: ScriptLimits) -> String {
    format!("it ran for longer than {:?}", limits.time)
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScriptFault {}

/// A projection in JavaScript.
#[derive(Clone)]
pub struct Script {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    file: String,
    /// The exported version, and a hash of the script's text.
    fingerprint: String,
    exports: Exports,
    host: Host,
}

/// The place where a script runs.
enum Host {
    /// In this process. One thread at a time calls the engine. After a call that exceeded a limit
    /// it is replaced.
    Here(Source, Mutex<Option<Engine>>),
    /// In worker processes.
    Workers(Remote),
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
    /// Compiles a script under the name of its projection, to run in this process. Errors name the
    /// file.
    pub fn compile(
        name: impl Into<String>,
        file: impl Into<String>,
        limits: ScriptLimits,
        source: impl Into<String>,
    ) -> Result<Self, ScriptFault> {
        let source = Source { file: file.into(), text: source.into(), limits };
        let engine = Engine::new(&source.file, &source.text, limits)?;
        let exports = engine.exports.clone();
        Ok(Self::new(name.into(), exports, &source.clone(), Host::Here(source, Mutex::new(Some(engine)))))
    }

    /// Compiles a script to run in worker processes. Blocks the thread until a worker has loaded
    /// it.
    pub fn compile_in(
        workers: &Workers,
        name: impl Into<String>,
        file: impl Into<String>,
        limits: ScriptLimits,
        source: impl Into<String>,
    ) -> Result<Self, ScriptFault> {
        let source = Source { file: file.into(), text: source.into(), limits };
        let identity = identity(&source.file, &source.text, limits);
        let (remote, exports) = Remote::load(workers.clone(), identity, source.clone())?;
        Ok(Self::new(name.into(), exports, &source, Host::Workers(remote)))
    }

    fn new(name: String, exports: Exports, source: &Source, host: Host) -> Self {
        let fingerprint = format!("{}-{:016x}", exports.version, hash([&source.text]));
        Self { inner: Arc::new(Inner { name, file: source.file.clone(), fingerprint, exports, host }) }
    }

    /// Returns whether both are the same compiled script.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns whether it was compiled in worker processes from exactly this input.
    pub fn is_made_of(&self, name: &str, file: &str, limits: ScriptLimits, source: &str) -> bool {
        let is_it = |remote: &Remote| remote.script() == identity(file, source, limits);
        self.inner.name == name && matches!(&self.inner.host, Host::Workers(remote) if is_it(remote))
    }

    /// Returns the types of events that the script has functions for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.inner.exports.types.iter().map(String::as_str)
    }
}

/// Returns the identity of a script with its limits.
fn identity(file: &str, text: &str, limits: ScriptLimits) -> u64 {
    hash([file, text, &format!("{limits:?}")])
}

/// Returns a hash of texts: the first eight bytes of a SHA-256.
fn hash<const N: usize>(texts: [&str; N]) -> u64 {
    let mut digest = Sha256::new();
    for (text, number) in texts.iter().zip(0..) {
        if number > 0 {
            digest.update([0]);
        }
        digest.update(text);
    }
    let digest = digest.finalize();
    u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
}

impl Inner {
    fn has(&self, kind: &EventKind) -> bool {
        self.exports.types.iter().any(|one| one == kind.as_str())
    }

    fn route(&self, event: &Event<Json>) -> Result<DocumentIds, Invalid> {
        let event = text(event).map_err(|error| unroutable(&error))?;
        let ids = match &self.host {
            Host::Here(source, engine) => here(source, engine, |engine| engine.route(&event)),
            Host::Workers(remote) => remote.route(&[&event]).and_then(|mut routed| ids(routed.pop())),
        };
        DocumentIds::many(ids.map_err(|fault| unroutable(&fault))?)
    }

    fn fold(&self, document: Option<&str>, event: &Event<Json>) -> Result<Option<Json>, fold::Error> {
        let (shown, kind) = (text(event)?, event.kind.as_str());
        match &self.host {
            Host::Here(source, engine) => {
                let folded = here(source, engine, |engine| engine.fold(kind, document, &shown));
                folded.map_err(failed)
            }
            Host::Workers(remote) => {
                let item = Item { key: 0, document, kind, event: &shown };
                let folded = remote.fold(&[item], Extent { least: 1, time: Duration::ZERO });
                folded.map_err(failed)?.pop().and_then(folded_by).unwrap_or_else(|| Err(unanswered()))
            }
        }
    }
}

/// Calls the engine of a script in this process.
fn here<T>(
    source: &Source,
    engine: &Mutex<Option<Engine>>,
    call: impl FnOnce(&Engine) -> Result<T, ScriptFault>,
) -> Result<T, ScriptFault> {
    let mut kept = engine.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = match kept.take() {
        Some(engine) => engine,
        None => Engine::new(&source.file, &source.text, source.limits)?,
    };
    let answer = call(&engine);
    // An interrupted engine may be in any state.
    if !answer.as_ref().is_err_and(|fault| fault.is_limit) {
        *kept = Some(engine);
    }
    answer
}

fn unroutable(error: &dyn fmt::Display) -> Invalid {
    Invalid::new("route", "", error.to_string())
}

fn failed(fault: ScriptFault) -> fold::Error {
    fold::Error::new(fault.message)
}

fn unanswered() -> fold::Error {
    fold::Error::new("the worker gave no answer")
}

/// Returns the ids in a worker's response.
fn ids(record: Option<Record>) -> Result<Vec<String>, ScriptFault> {
    match record {
        Some(Record::Ids(ids)) => Ok(ids),
        Some(Record::Fault(fault)) => Err(fault),
        _ => Err(ScriptFault::new("the worker gave no ids".to_owned())),
    }
}

/// Returns the fold in a worker's response, or `None` if it was not computed.
fn folded_by(record: Record) -> Option<Folded<Json>> {
    match record {
        Record::Document(text) => Some(Ok(Some(Json::stored(text)))),
        Record::Nothing => Some(Ok(None)),
        Record::Fault(fault) => Some(Err(failed(fault))),
        Record::Skipped => None,
        Record::Loaded(_) | Record::Ids(_) | Record::End(_) => Some(Err(unanswered())),
    }
}

/// Only scripts in worker processes gain from folding many at a time.
impl Bulk<Json, Json> for Remote {
    fn route(&self, events: &[&Event<Json>]) -> Vec<Result<DocumentIds, Invalid>> {
        let texts: Result<Vec<_>, _> = events.iter().map(|event| text(event)).collect();
        let routed = texts
            .map_err(|error| ScriptFault::new(error.to_string()))
            .and_then(|texts| Self::route(self, &texts.iter().map(String::as_str).collect::<Vec<_>>()));
        match routed {
            Ok(routed) => {
                let ids = routed.into_iter().map(|record| ids(Some(record)));
                ids.map(|ids| ids.map_err(|fault| unroutable(&fault)).and_then(DocumentIds::many)).collect()
            }
            Err(fault) => events.iter().map(|_| Err(unroutable(&fault))).collect(),
        }
    }

    fn fold(
        &self,
        folds: &[Upcoming<'_, Json, Json>],
        least: usize,
        time: Duration,
    ) -> Vec<Option<Folded<Json>>> {
        let texts: Result<Vec<_>, _> = folds.iter().map(|fold| text(fold.event)).collect();
        // Events without a result here are folded one by one, and fail there.
        let Ok(texts) = texts else { return Vec::new() };
        let mut keys = HashMap::new();
        let items = folds.iter().zip(&texts).map(|(fold, event)| {
            let next = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            let key = *keys.entry(fold.id).or_insert(next);
            Item { key, document: fold.document.map(Json::as_str), kind: fold.event.kind.as_str(), event }
        });
        let items: Vec<_> = items.collect();
        match Self::fold(self, &items, Extent { least, time }) {
            Ok(records) => records.into_iter().map(folded_by).collect(),
            Err(fault) => {
                tracing::debug!(%fault, "folds were not computed ahead");
                Vec::new()
            }
        }
    }
}

impl Projection for Script {
    type Event = Json;
    type Document = Json;

    fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the version that the script exports, or 1 if it exports none.
    fn version(&self) -> u32 {
        self.inner.exports.version
    }

    /// Returns the version and a hash of the text. Two scripts that differ only in a comment have
    /// different fingerprints.
    fn fingerprint(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.inner.fingerprint)
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
        self.inner.fold(document.as_ref().map(Json::as_str), event)
    }

    fn bulk(&self) -> Option<&dyn Bulk<Json, Json>> {
        match &self.inner.host {
            Host::Here(..) => None,
            Host::Workers(remote) => Some(remote),
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
