//! A JavaScript engine with one script in it, and limits on what it may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rquickjs::context::intrinsic::{
    Date, Eval, Json as JsonText, MapSet, Promise as Promises, Proxy, RegExp, RegExpCompiler, TypedArrays,
};
use rquickjs::{CatchResultExt as _, CaughtError, Context, Ctx, Function, Module, Object, Runtime};

use crate::{Fault, Limits};

/// What a script finds, and how it is called.
const PRELUDE: &str = include_str!("prelude.js");
/// Threads of async runtimes have two megabytes.
const STACK: usize = 512 << 10;

/// What there is in a language without a clock, weak references and files.
type Builtins = (Date, Eval, RegExpCompiler, RegExp, JsonText, Proxy, MapSet, TypedArrays, Promises);

/// An engine, ready to be called.
pub(crate) struct Engine {
    context: Context,
    deadline: Arc<Deadline>,
    limits: Limits,
    pub(crate) exports: Exports,
}

/// What a script exports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exports {
    pub(crate) types: Vec<String>,
    pub(crate) version: u32,
    pub(crate) routes: bool,
}

/// Until when a call may run, in nanoseconds since the engine was made.
struct Deadline {
    base: Instant,
    at: AtomicU64,
}

impl Deadline {
    fn set(&self, limit: Duration) {
        self.at.store(nanos(self.base.elapsed() + limit), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        nanos(self.base.elapsed()) > self.at.load(Ordering::Relaxed)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Runs a script once, to get at what it exports.
    pub(crate) fn new(file: &str, source: &str, limits: Limits) -> Result<Self, Fault> {
        let engine = |error: rquickjs::Error| Fault::new(format!("the engine can't be made: {error}"));
        let runtime = Runtime::new().map_err(engine)?;
        runtime.set_memory_limit(limits.memory);
        runtime.set_max_stack_size(STACK);
        let deadline = Arc::new(Deadline { base: Instant::now(), at: AtomicU64::new(u64::MAX) });
        let watched = Arc::clone(&deadline);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_over())));
        let context = Context::custom::<Builtins>(&runtime).map_err(engine)?;
        let mut engine = Self { context, deadline, limits, exports: Exports::default() };
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

    /// The document after an event, both as JSON.
    pub(crate) fn fold(
        &self,
        kind: &str,
        document: Option<&str>,
        event: &str,
    ) -> Result<Option<String>, Fault> {
        self.call(|ctx| {
            let fold: Function<'_> = ctx.globals().get::<_, Object<'_>>("__leftfold")?.get("fold")?;
            match document {
                Some(document) => fold.call((kind, document, event)),
                None => fold.call((kind, rquickjs::Undefined, event)),
            }
        })
    }

    /// The ids of the documents that an event belongs to.
    pub(crate) fn route(&self, event: &str) -> Result<Vec<String>, Fault> {
        self.call(|ctx| {
            let route: Function<'_> = ctx.globals().get::<_, Object<'_>>("__leftfold")?.get("route")?;
            route.call((event,))
        })
    }

    /// Runs something under the limits.
    fn call<T>(&self, run: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>) -> Result<T, Fault> {
        self.deadline.set(self.limits.time);
        self.context.with(|ctx| run(&ctx).catch(&ctx).map_err(|error| self.fault(&error)))
    }

    fn fault(&self, error: &CaughtError<'_>) -> Fault {
        if self.deadline.is_over() {
            return Fault::limit(format!("it ran for longer than {:?}", self.limits.time), true);
        }
        match error {
            CaughtError::Exception(exception) => {
                let name: Option<String> = exception.as_object().get("name").ok();
                let (message, stack) = (exception.message(), exception.stack());
                let message = message.unwrap_or_default();
                if message.contains("out of memory") {
                    let most = self.limits.memory >> 20;
                    return Fault::limit(format!("it took more than {most} MiB of memory"), false);
                }
                let name = name.unwrap_or_else(|| "Error".to_owned());
                let lines = stack.iter().flat_map(|stack| stack.lines()).map(str::trim);
                let lines = lines.filter(|line| !line.contains("eval_script") && !line.is_empty());
                let said: Vec<_> =
                    [format!("{name}: {message}")].into_iter().chain(lines.map(str::to_owned)).collect();
                Fault::new(said.join("\n  "))
            }
            CaughtError::Value(value) => {
                let text = value.as_string().and_then(|text| text.to_string().ok());
                Fault::new(format!(
                    "it threw {}",
                    text.unwrap_or_else(|| "something that is no error".to_owned())
                ))
            }
            // Where memory ends, there is none for an exception, either.
            CaughtError::Error(rquickjs::Error::Allocation) => {
                Fault::limit(format!("it took more than {} MiB of memory", self.limits.memory >> 20), false)
            }
            CaughtError::Error(rquickjs::Error::WouldBlock) => {
                Fault::new("it waits for something that never comes".to_owned())
            }
            CaughtError::Error(error) => Fault::new(error.to_string()),
        }
    }
}

/// A version that the script was checked to have.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number of 32 bits"
)]
fn whole(number: f64) -> u32 {
    number as u32
}
