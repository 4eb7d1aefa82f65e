//! A script as a projection.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::fold::{self, Bulk, DocumentIds};
use leftfold::{Event, EventKind, Invalid, Json, Projection, Route};

use crate::bulk::{failed, folded_by, ids, unanswered, unroutable};
use crate::engine::{Engine, Exports};
use crate::event::text;
use crate::identity::{hash, identity};
use crate::remote::{Extent, Item, Remote};
use crate::wire::Source;
use crate::{ScriptFault, ScriptLimits, Workers};

/// A projection in JavaScript: an ES module that exports an object of functions by event type.
///
/// A module may also export:
///
/// - `route`, a function from an event to a document id, an array of ids, or `null`. Without it,
///   the id is the event's stream.
/// - `version`, a number for people. The default is 1. Any change of the script's text requires a
///   rebuild of the documents.
///
/// An event is `{ id, stream, revision, type, time, data, metadata }`. Its time is a text such as
/// `2026-01-01T00:00:00Z`. A missing document is `undefined`, so a parameter can have a default. A
/// function returns the next document: an object, or `null` for none. Events of other types are
/// ignored.
///
/// **Deterministic**: scripts have no clock, random numbers, local time zone, files or network, and
/// `Date.now()` and the like throw. Variables of a module would live from event to event, in one
/// process. [Contract checks](leftfold::testing::Spec::holds_under_chaos) find scripts that use
/// them.
///
/// **Bounded**: a call that takes too much processor time or memory fails like one that throws.
/// Numbers are those of JavaScript: whole ones are exact up to 2⁵³. Larger ones are passed on
/// exactly, and a script that calculates with them fails.
///
/// # Contained
///
/// [`compile`](Self::compile) runs a script in this process, where the engine enforces the limits
/// as far as it can. Some calls, such as `text.includes(…)` on long texts, are one step to the
/// engine and can't be interrupted. [`compile_in`](Self::compile_in) runs a script in
/// [worker processes](Workers) that can be killed. The daemon does so.
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
    InProcess(Source, Mutex<Option<Engine>>),
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
        Ok(Self::new(
            name.into(),
            exports,
            &source.clone(),
            Host::InProcess(source, Mutex::new(Some(engine))),
        ))
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
        let is_same = |remote: &Remote| remote.script() == identity(file, source, limits);
        self.inner.name == name && matches!(&self.inner.host, Host::Workers(remote) if is_same(remote))
    }

    /// Returns the types of events that the script has functions for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.inner.exports.types.iter().map(String::as_str)
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
            Host::InProcess(..) => None,
            Host::Workers(remote) => Some(remote),
        }
    }
}

impl Inner {
    fn has(&self, kind: &EventKind) -> bool {
        self.exports.types.iter().any(|one| one == kind.as_str())
    }

    fn route(&self, event: &Event<Json>) -> Result<DocumentIds, Invalid> {
        let event = text(event).map_err(|error| unroutable(&error))?;
        let ids = match &self.host {
            Host::InProcess(source, engine) => in_process(source, engine, |engine| engine.route(&event)),
            Host::Workers(remote) => remote.route(&[&event]).and_then(|mut routed| ids(routed.pop())),
        };
        DocumentIds::many(ids.map_err(|fault| unroutable(&fault))?)
    }

    fn fold(&self, document: Option<&str>, event: &Event<Json>) -> Result<Option<Json>, fold::Error> {
        let (shown, kind) = (text(event)?, event.kind.as_str());
        match &self.host {
            Host::InProcess(source, engine) => {
                let folded = in_process(source, engine, |engine| engine.fold(kind, document, &shown));
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
fn in_process<T>(
    source: &Source,
    engine: &Mutex<Option<Engine>>,
    call: impl FnOnce(&Engine) -> Result<T, ScriptFault>,
) -> Result<T, ScriptFault> {
    let mut slot = engine.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = match slot.take() {
        Some(engine) => engine,
        None => Engine::new(&source.file, &source.text, source.limits)?,
    };
    let answer = call(&engine);
    // An interrupted engine may be in any state.
    if !answer.as_ref().is_err_and(|fault| fault.is_limit) {
        *slot = Some(engine);
    }
    answer
}
