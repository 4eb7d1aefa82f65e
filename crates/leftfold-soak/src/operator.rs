//! The operator: kills and restarts the daemon, makes it read broken files, and sets its clock.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::arena::{Arena, Phase};
use crate::args::Store;
use crate::daemon::Daemon;
use crate::dice::Dice;
use crate::files;
use crate::http::{Client, JSON};
use crate::memory::{Meter, children};
use crate::plan::{Kill, Plan};

/// The time limits for a start, a stop and a reload. A slow start ends the run; the others count as
/// failed.
const START: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(30);
/// The time after which a second SIGTERM makes the daemon exit at once.
const INSIST: Duration = Duration::from_secs(2);
/// The time after which surviving workers of a killed daemon count as orphans.
const ORPHANED: Duration = Duration::from_secs(2);
const RELOAD: Duration = Duration::from_mins(1);

/// The operator's source address, different from the bystander's and the hostile clients'.
const SOURCE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The operator of a run, on the thread that starts the daemon.
pub(crate) struct Operator<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) meter: &'a Meter,
    pub(crate) store: Store,
    pub(crate) daemon: Daemon,
    /// The valid configuration.
    pub(crate) valid: String,
    pub(crate) dice: Dice,
    pub(crate) tally: Tally,
    /// The workers of killed daemons, each with the time of the kill.
    pub(crate) left: Vec<(Instant, u32)>,
}

/// The operator's acts and their results.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) reloads: u64,
    pub(crate) slowest_reload: Duration,
    pub(crate) clock_steps: u64,
    /// Workers that outlived their daemon.
    pub(crate) orphans: u64,
    /// Stops that needed a second SIGTERM.
    pub(crate) insisted: u64,
    /// Reloads with a wrong result.
    pub(crate) misread: Vec<String>,
    /// Daemons that exited unexpectedly or did not stop.
    pub(crate) ends: Vec<String>,
}

/// A reason to abort the run.
pub(crate) type Fatal = String;

impl Operator<'_> {
    /// Starts the daemon for the first time.
    pub(crate) fn begin(&mut self) -> Result<(), Fatal> {
        self.write(&self.valid)?;
        self.start()?;
        self.wait_until_ready()?;
        self.wait_until_folding()
    }

    /// Runs the hostile phase.
    pub(crate) fn run(&mut self, plan: &Plan, mut progress: impl FnMut(&Arena)) -> Result<(), Fatal> {
        let begun = Instant::now();
        let mut kills = plan.kills.iter().peekable();
        let mut next = self.pause();
        while begun.elapsed() < plan.hostile {
            progress(self.arena);
            self.check_exit()?;
            self.count_orphans();
            if let Some(kill) = kills.next_if(|kill| kill.at <= begun.elapsed()) {
                self.kill(*kill)?;
            } else if Instant::now() >= next {
                self.act()?;
                next = self.pause();
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn pause(&mut self) -> Instant {
        Instant::now() + self.dice.between(Duration::from_millis(1_500), Duration::from_secs(4))
    }

    /// Reloads a broken file and then the valid one, or sets the clock.
    fn act(&mut self) -> Result<(), Fatal> {
        if let Some(clock) = self.daemon.clock()
            && self.dice.below(2) == 0
        {
            clock.step(&mut self.dice).map_err(|error| format!("setting the clock: {error}"))?;
            self.tally.clock_steps += 1;
            return Ok(());
        }
        let fault = files::any(self.store, &mut self.dice);
        self.reload(fault.title, &fault.applied(&self.valid), false)?;
        self.reload("the valid file", &self.valid.clone(), true)
    }

    fn reload(&mut self, title: &str, text: &str, is_valid: bool) -> Result<(), Fatal> {
        self.write(text)?;
        let (place, begun) = (self.daemon.logged(), Instant::now());
        self.daemon.signal(Signal::HUP).map_err(|error| format!("sending SIGHUP: {error}"))?;
        self.tally.reloads += 1;
        loop {
            let log = self.daemon.log_after(place);
            if let Some(outcome) = outcome(&log) {
                self.tally.slowest_reload = self.tally.slowest_reload.max(begun.elapsed());
                if outcome != is_valid {
                    let line = log.lines().find(|line| line.contains("reloaded")).unwrap_or_default();
                    self.tally.misread.push(format!("{title}: {line}"));
                }
                return Ok(());
            }
            self.check_exit()?;
            if begun.elapsed() > RELOAD {
                self.tally.misread.push(format!("{title}: no outcome was logged within {RELOAD:?}"));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self, kill: Kill) -> Result<(), Fatal> {
        let signal = if kill.is_gentle { Signal::TERM } else { Signal::KILL };
        let workers = children(self.daemon.id());
        self.arena.windows.open();
        self.daemon.signal(signal).map_err(|error| format!("sending a signal: {error}"))?;
        let failed = |error| format!("waiting for the daemon: {error}");
        if !self.daemon.wait(INSIST).map_err(failed)? {
            self.tally.insisted += 1;
            self.daemon.signal(signal).map_err(|error| format!("sending a signal: {error}"))?;
        }
        if !self.daemon.wait(STOP).map_err(failed)? {
            self.daemon.kill();
            self.tally.ends.push(format!("the daemon did not stop within {STOP:?} of a second SIGTERM"));
        }
        self.left.extend(workers.into_iter().map(|worker| (Instant::now(), worker)));
        self.restart()
    }

    /// Restarts the daemon and closes the open window.
    fn restart(&mut self) -> Result<(), Fatal> {
        self.start()?;
        self.wait_until_ready()?;
        self.arena.windows.ready();
        self.wait_until_folding()?;
        self.arena.windows.close();
        Ok(())
    }

    /// Counts workers that have outlived their daemon.
    fn count_orphans(&mut self) {
        let due = self.left.extract_if(.., |(since, _)| since.elapsed() > ORPHANED);
        let lives = |worker: u32| {
            let command = std::fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap_or_default();
            command.contains("worker")
        };
        self.tally.orphans += due.filter(|(_, worker)| lives(*worker)).count() as u64;
    }

    /// Restarts a daemon that has exited unexpectedly.
    fn check_exit(&mut self) -> Result<(), Fatal> {
        let ended = self.daemon.ended().map_err(|error| format!("checking the daemon: {error}"))?;
        if let Some(status) = ended {
            self.tally.ends.push(format!("the daemon ended by itself, {status}"));
            self.arena.windows.open();
            self.restart()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Fatal> {
        let id = self.daemon.start().map_err(|error| format!("starting the daemon: {error}"))?;
        self.meter.watch(id);
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<(), Fatal> {
        let mut client = Client::new(self.arena.address, SOURCE, START);
        self.until("ready", || client.get("/readyz").is_ok_and(|answer| answer.status == 200))
    }

    /// Waits until a newly appended event is folded.
    fn wait_until_folding(&mut self) -> Result<(), Fatal> {
        let mut client = Client::new(self.arena.address, SOURCE, START);
        let body = r#"{"type": "cart-opened", "data": {"client": "probe"}}"#;
        let mut bookmark = None;
        self.until("folding", || {
            if bookmark.is_none() {
                let answer = client.send("POST", "/streams/probe", &[JSON], body);
                let appended = answer.ok().filter(|answer| answer.status == 201);
                bookmark = appended.and_then(|answer| answer.json()["bookmark"].as_str().map(str::to_owned));
            }
            let Some(bookmark) = &bookmark else { return false };
            let path = format!("/collections/carts/documents/probe?at_least={bookmark}&wait=20s");
            client.get(&path).is_ok_and(|answer| answer.status == 200)
        })
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Fatal> {
        let begun = Instant::now();
        while !is_so() {
            let ended = self.daemon.ended().map_err(|error| format!("checking the daemon: {error}"))?;
            if ended.is_some() || begun.elapsed() > START {
                let log = self.daemon.log_after(self.daemon.logged().saturating_sub(2_000));
                let how = ended.map_or_else(|| "it runs".to_owned(), |status| status.to_string());
                return Err(format!("the daemon is not {what} ({how}); the end of its log:\n{log}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn write(&self, text: &str) -> Result<(), Fatal> {
        self.daemon.write_file(text).map_err(|error| format!("writing leftfold.toml: {error}"))
    }

    /// Ends the hostile phase and returns the number of parked documents.
    pub(crate) fn end(&mut self) -> u64 {
        self.arena.enter(Phase::Over);
        let mut client = Client::new(self.arena.address, SOURCE, START);
        let Ok(status) = client.get("/status") else { return 0 };
        let status = status.json();
        let projections = status["projections"].as_array().into_iter().flatten();
        projections.filter_map(|one| one["parked_documents"].as_u64()).sum()
    }
}

/// Returns whether the log reports a successful reload, or `None` if it reports no reload.
fn outcome(log: &str) -> Option<bool> {
    if log.contains("not reloaded") {
        return Some(false);
    }
    log.contains(" reloaded file=").then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_whether_a_file_was_loaded() {
        assert_eq!(outcome("INFO leftfold::daemon::serve: listening"), None);
        assert_eq!(outcome("ERROR serve: not reloaded, all goes on as before error=…"), Some(false));
        assert_eq!(outcome("INFO serve: reloaded file=leftfold.toml projections=3"), Some(true));
    }
}
