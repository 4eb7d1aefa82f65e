//! A JavaScript engine with one script in it, and limits on its time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leftfold::Json;
use leftfold::documents::MAX_BODY_DEPTH;
use rquickjs::context::intrinsic::{
    Date, Eval, Json as JsonText, MapSet, Promise as Promises, Proxy, RegExp, RegExpCompiler, TypedArrays,
};
use rquickjs::{CatchResultExt as _, CaughtError, Context, Ctx, Function, Module, Object, Runtime};
use rustix::time::{ClockId, clock_gettime};

use crate::{ScriptFault, ScriptLimits};

/// The environment of a script, and the functions that call it.
const PRELUDE: &str = include_str!("prelude.js");
/// Threads of async runtimes have a stack of two megabytes.
const STACK: usize = 512 << 10;

/// The built-in objects, without a clock, weak references and files.
type Builtins = (Date, Eval, RegExpCompiler, RegExp, JsonText, Proxy, MapSet, TypedArrays, Promises);

/// An engine with a loaded script.
pub(crate) struct Engine {
    context: Context,
    watch: Arc<Watch>,
    limits: ScriptLimits,
    pub(crate) exports: Exports,
}

/// The exports of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exports {
    pub(crate) types: Vec<String>,
    pub(crate) version: u32,
    pub(crate) routes: bool,
}

/// A timer for the processor time of a call. The engine checks it every few thousand steps, so a
/// short call never reads the clock.
#[derive(Default)]
struct Watch {
    /// The processor time of the thread at the first check of this call, in nanoseconds; 0 before
    /// it.
    since: AtomicU64,
    is_over: AtomicBool,
}

impl Watch {
    fn begin(&self) {
        self.since.store(0, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// Returns whether the call has exceeded its time. The result stays `true`, because a script
    /// may catch the interruption.
    fn check(&self, limit: Duration) -> bool {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now =
            u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
        match self.since.load(Ordering::Relaxed) {
            0 => self.since.store(now.max(1), Ordering::Relaxed),
            since if u128::from(now.saturating_sub(since)) > limit.as_nanos() => {
                self.is_over.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Runs a script once to get its exports.
    pub(crate) fn new(file: &str, source: &str, limits: ScriptLimits) -> Result<Self, ScriptFault> {
        let engine =
            |error: rquickjs::Error| ScriptFault::new(format!("creating the engine failed: {error}"));
        let runtime = Runtime::new().map_err(engine)?;
        runtime.set_memory_limit(limits.memory);
        runtime.set_max_stack_size(STACK);
        let watch = Arc::new(Watch::default());
        let watched = Arc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.check(limits.time))));
        let context = Context::custom::<Builtins>(&runtime).map_err(engine)?;
        let mut engine = Self { context, watch, limits, exports: Exports::default() };
        engine.exports = engine.call(|ctx| {
            ctx.eval::<(), _>(PRELUDE)?;
            let (module, done) = Module::declare(ctx.clone(), file, source)?.eval()?;
            done.finish::<()>()?;
            let setup: Function<'_> = ctx.globals().get("__leftfold")?;
            let exported: Object<'_> = setup.call((module.namespace()?,))?;
            Ok(Exports {
                types: exported.get("types")?,
                version: exported.get::<_, f64>("version").map(whole)?,
                routes: exported.get("routes")?,
            })
        })?;
        Ok(engine)
    }

    /// Returns the document after an event, both as JSON.
    pub(crate) fn fold(
        &self,
        kind: &str,
        document: Option<&str>,
        event: &str,
    ) -> Result<Option<Json>, ScriptFault> {
        let folded: Option<String> = self.call(|ctx| {
            let fold: Function<'_> = ctx.globals().get("__leftfoldFold")?;
            let is_exact = has_long_number(event) || document.is_some_and(has_long_number);
            let folded: Option<String> = match document {
                Some(document) => fold.call((kind, document, event, is_exact)),
                None => fold.call((kind, rquickjs::Undefined, event, is_exact)),
            }?;
            // JSON writes non-finite numbers as null. Rust finds them faster than the engine does.
            if folded.as_ref().is_some_and(|text| text.contains("null")) {
                let check: Function<'_> = ctx.globals().get("__leftfoldCheck")?;
                check.call::<_, ()>((kind,))?;
            }
            Ok(folded)
        })?;
        // All later readers must be able to parse the document.
        let checked = folded.map(|text| Json::strict_within(&text, MAX_BODY_DEPTH)).transpose();
        checked.map_err(|fault| ScriptFault::new(format!("the document can't be stored: {fault}")))
    }

    /// Returns the ids of the documents that an event belongs to.
    pub(crate) fn route(&self, event: &str) -> Result<Vec<String>, ScriptFault> {
        self.call(|ctx| {
            let route: Function<'_> = ctx.globals().get("__leftfoldRoute")?;
            route.call((event, has_long_number(event)))
        })
    }

    /// Runs a call under the limits.
    fn call<T>(&self, run: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>) -> Result<T, ScriptFault> {
        self.watch.begin();
        self.context.with(|ctx| run(&ctx).catch(&ctx).map_err(|error| self.fault(&error)))
    }

    fn fault(&self, error: &CaughtError<'_>) -> ScriptFault {
        if self.watch.is_over.load(Ordering::Relaxed) {
            return ScriptFault::limit(self.limits.time_exceeded());
        }
        match error {
            CaughtError::Exception(exception) => {
                let name: Option<String> = exception.as_object().get("name").ok();
                let (message, stack) = (exception.message(), exception.stack());
                let message = message.unwrap_or_default();
                if message.contains("out of memory") {
                    return ScriptFault::limit(self.limits.memory_exceeded());
                }
                let name = name.unwrap_or_else(|| "Error".to_owned());
                let lines = stack.iter().flat_map(|stack| stack.lines()).map(str::trim);
                let lines = lines.filter(|line| !line.contains("eval_script") && !line.is_empty());
                let text: Vec<_> =
                    [format!("{name}: {message}")].into_iter().chain(lines.map(str::to_owned)).collect();
                ScriptFault::new(text.join("\n  "))
            }
            // Without memory for an exception, the engine throws null instead.
            CaughtError::Value(value) if value.is_null() => {
                ScriptFault::limit(format!("{}, or threw null", self.limits.memory_exceeded()))
            }
            CaughtError::Value(value) => {
                let text = value.as_string().and_then(|text| text.to_string().ok());
                let thrown = text.unwrap_or_else(|| "a value that is not an error".to_owned());
                ScriptFault::new(format!("the script threw {thrown}"))
            }
            // Without memory, there is none for an exception, either.
            CaughtError::Error(rquickjs::Error::Allocation) => {
                ScriptFault::limit(self.limits.memory_exceeded())
            }
            CaughtError::Error(rquickjs::Error::WouldBlock) => {
                ScriptFault::new("the script waits for a promise that never resolves".to_owned())
            }
            CaughtError::Error(error) => ScriptFault::new(error.to_string()),
        }
    }
}

/// Returns whether a text may contain a number that JavaScript would round. Reading all numbers
/// exactly costs time.
fn has_long_number(text: &str) -> bool {
    /// Whole numbers are exact up to 2⁵³, which has 16 digits.
    const LONG: usize = 16;
    let bytes = text.as_bytes();
    let mut at = LONG - 1;
    // Each run of digits that is long enough covers a position that is a multiple of `LONG`.
    while at < bytes.len() {
        if bytes[at].is_ascii_digit() {
            let begin =
                bytes[..at].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |other| other + 1);
            let end =
                bytes[at..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
            if end - begin >= LONG {
                return true;
            }
        }
        at += LONG;
    }
    false
}

/// Converts a version that was checked before.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number of 32 bits"
)]
fn whole(number: f64) -> u32 {
    number as u32
}
