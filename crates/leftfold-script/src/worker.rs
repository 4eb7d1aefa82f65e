//! A worker process: loads scripts, and folds and routes events for its parent, one job at a time.
//!
//! The parent may kill it at any moment. It then reads the current item from the announcement, a
//! small file that both have open. Nothing here is durable or trusted: the parent checks the
//! results.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getppid, getrlimit, nice, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::engine::Engine;
use crate::wire::{Before, FoldItem, Job, Record, Source, Work, parse, read_frame};
use crate::{ScriptFault, process};

/// The number of scripts that a worker keeps loaded. The parent keeps the same list.
pub(crate) const MAX_LOADED: usize = 4;
/// Scripts run at a lower priority than the process that serves requests.
const NICENESS: i32 = 10;
/// The worker's memory besides that of the scripts.
const OWN_MEMORY_BYTES: u64 = 512 << 20;
const FLUSH_BYTES: usize = 1 << 16;

/// Serves jobs until the parent closes the socket. This is the whole `main` of a worker process.
///
/// The socket is standard input, the announcement standard output.
pub fn run_worker() -> ExitCode {
    // The parent reports the loss of a worker. The text of a panic would have no reader.
    std::panic::set_hook(Box::new(|_| {}));
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let announcement = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // A worker also works at the normal priority.
    let _ = nice(NICENESS);
    for resource in [Resource::Core, Resource::Fsize] {
        // The announcement has eight bytes.
        let most = if resource == Resource::Core { 0 } else { 4096 };
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    end_with_parent();
    let mut worker = Worker { announcement, loaded: Vec::new() };
    let mut frame = Vec::new();
    while read_frame(&mut socket, &mut frame)? {
        worker.run(parse(&frame)?, &mut socket)?;
        if frame.capacity() > FLUSH_BYTES {
            frame = Vec::new();
        }
    }
    Ok(())
}

struct Worker {
    announcement: File,
    /// The loaded scripts, the last used first.
    loaded: Vec<Loaded>,
}

/// A script, with its engine unless that exceeded a limit.
struct Loaded {
    script: u64,
    source: Source,
    engine: Option<Engine>,
}

/// Results to send to the parent.
struct Results<'a> {
    socket: &'a mut UnixStream,
    buffer: Vec<u8>,
    begun: Instant,
    most_time: Duration,
    most_bytes: usize,
    bytes: usize,
}

impl Results<'_> {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        let before = self.buffer.len();
        record.put(&mut self.buffer);
        self.bytes += self.buffer.len() - before;
        if self.buffer.len() > FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes > self.most_bytes || self.begun.elapsed() > self.most_time
    }
}

impl Worker {
    fn run(&mut self, job: Job<'_>, socket: &mut UnixStream) -> io::Result<()> {
        let Job { script, source, most_time, most_bytes, work } = job;
        let mut results = Results {
            socket,
            buffer: Vec::new(),
            begun: Instant::now(),
            most_time,
            most_bytes: most_bytes as usize,
            bytes: 0,
        };
        self.announce(process::LOADING)?;
        let loaded = self.load(script, source);
        let begun = cpu();
        match loaded {
            Err(fault) => results.put(&Record::Fault(fault))?,
            Ok(exports) => match work {
                Work::Load => results.put(&Record::Loaded(exports))?,
                Work::Fold(items) => self.fold(&items, &mut results)?,
                Work::Route(events) => self.route(&events, &mut results)?,
            },
        }
        self.announce(process::IDLE)?;
        results.put(&Record::End(cpu().saturating_sub(begun)))?;
        results.flush()
    }

    fn announce(&self, at: u64) -> io::Result<()> {
        self.announcement.write_all_at(&at.to_le_bytes(), 0)
    }

    /// Moves a script to the front, with an engine.
    fn load(&mut self, script: u64, source: Option<Source>) -> Result<crate::engine::Exports, ScriptFault> {
        if let Some(at) = self.loaded.iter().position(|loaded| loaded.script == script) {
            self.loaded[..=at].rotate_right(1);
        } else {
            let source =
                source.ok_or_else(|| ScriptFault::new("the worker does not have the script".into()))?;
            self.loaded.insert(0, Loaded { script, source, engine: None });
            self.loaded.truncate(MAX_LOADED);
        }
        let loaded = &mut self.loaded[0];
        limit_process(&loaded.source);
        let engine = match loaded.engine.take() {
            Some(engine) => engine,
            None => Engine::new(&loaded.source.file, &loaded.source.text, loaded.source.limits)?,
        };
        Ok(loaded.engine.insert(engine).exports.clone())
    }

    /// Calls the engine of the script in front. An engine that exceeded a limit may be in any
    /// state, so it is replaced.
    fn call<T>(&mut self, call: impl FnOnce(&Engine) -> Result<T, ScriptFault>) -> Result<T, ScriptFault> {
        let Loaded { source, engine, .. } = &mut self.loaded[0];
        let ready = match engine.take() {
            Some(ready) => ready,
            None => Engine::new(&source.file, &source.text, source.limits)?,
        };
        let answer = call(&ready);
        if !answer.as_ref().is_err_and(|fault| fault.is_limit) {
            *engine = Some(ready);
        }
        answer
    }

    fn fold(&mut self, items: &[FoldItem<'_>], results: &mut Results<'_>) -> io::Result<()> {
        /// The last result of each document. The inner `None` means that there is no document.
        type Last = Option<Option<String>>;
        let mut last: Vec<Last> = Vec::new();
        for (item, number) in items.iter().zip(0..) {
            if number > 0 && results.is_full() {
                return Ok(());
            }
            let key = item.key as usize;
            if last.len() <= key {
                last.resize(key + 1, None);
            }
            let before = match item.before {
                Before::Nothing => Some(None),
                Before::Text(text) => Some(Some(text)),
                Before::Last => last[key].as_ref().map(Option::as_deref),
            };
            let Some(before) = before else {
                results.put(&Record::Skipped)?;
                continue;
            };
            self.announce(number)?;
            let folded = self.call(|engine| engine.fold(item.kind, before, item.event));
            last[key] = match folded {
                Ok(Some(document)) => {
                    let record = Record::Document(document.into_string());
                    results.put(&record)?;
                    let Record::Document(text) = record else { continue };
                    Some(Some(text))
                }
                Ok(None) => {
                    results.put(&Record::Nothing)?;
                    Some(None)
                }
                Err(fault) => {
                    results.put(&Record::Fault(fault))?;
                    None
                }
            };
        }
        Ok(())
    }

    fn route(&mut self, events: &[&str], results: &mut Results<'_>) -> io::Result<()> {
        for (event, number) in events.iter().zip(0..) {
            if number > 0 && results.is_full() {
                return Ok(());
            }
            self.announce(number)?;
            results.put(&match self.call(|engine| engine.route(event)) {
                Ok(ids) => Record::Ids(ids),
                Err(fault) => Record::Fault(fault),
            })?;
        }
        Ok(())
    }
}

/// Ends this process soon after its parent, even while the engine is in a native loop.
fn end_with_parent() {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    let parent = getppid();
    std::thread::spawn(move || {
        while getppid() == parent {
            std::thread::sleep(LOOK_EVERY);
        }
        std::process::exit(1);
    });
}

/// Returns the processor time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Sets limits at which the system kills this process, if nothing else does.
fn limit_process(source: &Source) {
    const GRACE_SECONDS: u64 = 5;
    let most = cpu().as_secs() + 2 * source.limits.time.as_secs() + GRACE_SECONDS;
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(most), maximum });
    let memory = (MAX_LOADED * source.limits.memory) as u64 + OWN_MEMORY_BYTES;
    let Rlimit { maximum, .. } = getrlimit(Resource::Data);
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(memory), maximum });
}
