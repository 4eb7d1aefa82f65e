//! A worker process as its parent sees it. The parent sends jobs, receives results, and kills a
//! worker that exceeds its limits.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::{Job, Record, Source, Work};
use crate::worker::MAX_LOADED;
use crate::{ScriptFault, ScriptLimits};

/// Announced while a script is loaded.
pub(crate) const LOADING: u64 = u64::MAX;
/// Announced between jobs.
pub(crate) const IDLE: u64 = u64::MAX - 1;

/// The interval at which a busy worker is checked.
const TICK: Duration = Duration::from_millis(5);
/// The timeout for a worker to read a job.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The wall-clock limit of an item on a busy machine, as a multiple of its processor time …
const WALL_FACTOR: u32 = 30;
/// … and the minimum.
const LEAST_WALL: Duration = Duration::from_secs(30);

/// A worker process. Dropping the value kills it.
pub(crate) struct Process {
    child: Child,
    socket: UnixStream,
    announcement: File,
    /// The scripts that it has loaded, the last used first. The worker keeps the same list.
    loaded: Vec<u64>,
}

/// The results of a job.
pub(crate) struct Answer {
    /// One record for each item that was done, in order.
    pub(crate) records: Vec<Record>,
    /// The processor time of its items.
    pub(crate) cpu: Duration,
    /// The reason why the worker was lost, if it was.
    pub(crate) lost: Option<Lost>,
}

/// A worker that was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    /// The item that it was working on, or [`LOADING`] or [`IDLE`].
    pub(crate) at: u64,
    pub(crate) reason: String,
}

impl Process {
    pub(crate) fn spawn(program: &std::path::Path, arguments: &[String]) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let announcement = announcement()?;
        announcement.write_all_at(&IDLE.to_le_bytes(), 0)?;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            // If a script gets at the local time zone all the same, it is UTC.
            .env("TZ", "UTC")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(announcement.try_clone()?))
            .stderr(Stdio::null())
            // A terminal's signals are for the parent only.
            .process_group(0)
            .spawn()?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self { child, socket, announcement, loaded: Vec::new() })
    }

    pub(crate) fn has(&self, script: u64) -> bool {
        self.loaded.contains(&script)
    }

    /// Runs a job until its end or the loss of the worker. `limit` is the processor time per item.
    pub(crate) fn run(
        &mut self,
        (script, source): (u64, &Source),
        limit: Duration,
        (most_time, most_bytes): (Duration, u32),
        work: Work<'_>,
    ) -> Answer {
        let is_loaded = self.has(script);
        self.loaded.retain(|loaded| *loaded != script);
        self.loaded.insert(0, script);
        self.loaded.truncate(MAX_LOADED);
        let sent = (!is_loaded).then(|| source.clone());
        let job = Job { script, source: sent, most_time, most_bytes, work };
        let mut records = Vec::new();
        let done = job.write(&mut self.socket).and_then(|()| {
            let limits = ScriptLimits { time: limit, ..source.limits };
            let watched = Watched { process: self, limits, seen: None, exceeded: None };
            watched.read_all(&mut records)
        });
        match done {
            Ok(cpu) => Answer { records, cpu, lost: None },
            Err(error) => Answer { records, cpu: Duration::ZERO, lost: Some(self.lost(&error)) },
        }
    }

    /// Kills the worker, if it has not ended, and returns why it was lost.
    fn lost(&mut self, error: &io::Error) -> Lost {
        let at = self.announced();
        let exceeded = error.get_ref().and_then(|error| error.downcast_ref::<Exceeded>());
        // The rest of the process must not continue to run.
        let status = match exceeded {
            Some(_) => None,
            None => self.ended_by_itself(),
        };
        let _ = self.child.kill();
        let reason = match (exceeded, status) {
            (Some(Exceeded(reason)), _) => reason.clone(),
            (None, Some(reason)) => reason,
            (None, None) => format!("the worker sent an invalid response: {error}"),
        };
        Lost { at, reason }
    }

    /// Returns how the worker ended, if it ended by itself.
    fn ended_by_itself(&mut self) -> Option<String> {
        const LATE: Duration = Duration::from_millis(200);
        let begun = Instant::now();
        loop {
            let status = self.child.try_wait().ok().flatten();
            if let Some(status) = status {
                return Some(match status.signal() {
                    Some(signal) => format!("the worker was killed by signal {signal}"),
                    None => format!("the worker exited with {status}; it may have run out of memory"),
                });
            }
            if begun.elapsed() > LATE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn announced(&self) -> u64 {
        let mut at = [0; 8];
        match self.announcement.read_exact_at(&mut at, 0) {
            Ok(()) => u64::from_le_bytes(at),
            Err(_) => IDLE,
        }
    }

    /// Returns the processor time of the worker, if the system provides it.
    fn cpu(&self) -> Option<Duration> {
        // Exact to the nanosecond for the first thread, which runs the scripts. Not all kernels
        // have it.
        if let Ok(exact) = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))
            && let Some(nanoseconds) = exact.split_ascii_whitespace().next()
        {
            return nanoseconds.parse().ok().map(Duration::from_nanos);
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<_> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// Returns the worker's own memory in bytes, if the system provides it. The program's code is
    /// shared with others.
    pub(crate) fn memory(&self) -> Option<usize> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).ok()?;
        let mut fields = statm.split_ascii_whitespace().skip(1).map(str::parse::<usize>);
        let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(resident.saturating_sub(shared) * rustix::param::page_size())
    }
}

/// Creates a small file without a name.
#[cfg(target_os = "linux")]
fn announcement() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(File::from(memfd_create("leftfold-script", MemfdFlags::CLOEXEC)?))
}

/// Creates a small file whose name is removed at once.
#[cfg(not(target_os = "linux"))]
fn announcement() -> io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("leftfold-script-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads results, and checks the worker whenever none arrive for a while.
struct Watched<'a> {
    process: &'a Process,
    limits: ScriptLimits,
    /// The item announced at the last check, since when, and the processor time at that moment.
    seen: Option<(u64, Instant, Option<Duration>)>,
    exceeded: Option<Exceeded>,
}

/// The limit that a worker has exceeded.
#[derive(Clone, Debug)]
struct Exceeded(String);

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exceeded {}

impl Watched<'_> {
    /// Reads all results of a job. Returns its processor time.
    fn read_all(self, records: &mut Vec<Record>) -> io::Result<Duration> {
        let mut from = BufReader::with_capacity(1 << 16, self);
        loop {
            match Record::read(&mut from)? {
                Record::End(cpu) => return Ok(cpu),
                record => records.push(record),
            }
        }
    }

    /// Checks the limits of the item that the worker is working on.
    fn check(&mut self) -> Option<Exceeded> {
        let (at, now, cpu) = (self.process.announced(), Instant::now(), self.process.cpu());
        let Some((_, since, before)) = self.seen.filter(|(seen, ..)| *seen == at) else {
            self.seen = Some((at, now, cpu));
            return None;
        };
        if let (Some(before), Some(cpu)) = (before, cpu)
            && cpu.saturating_sub(before) > self.limits.time
        {
            return Some(Exceeded(self.limits.time_exceeded()));
        }
        let most = LEAST_WALL.max(self.limits.time * WALL_FACTOR);
        (now - since > most)
            .then(|| Exceeded(format!("the script took longer than {most:?} of wall-clock time")))
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.process.socket).read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    self.exceeded = self.check();
                    if let Some(exceeded) = &self.exceeded {
                        return Err(io::Error::other(exceeded.clone()));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// Returns the fault of a script whose worker could not be started or kept.
pub(crate) fn unavailable(error: &io::Error) -> ScriptFault {
    ScriptFault::new(format!("starting a worker process for scripts failed: {error}"))
}
