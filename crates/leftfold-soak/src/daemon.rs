//! The daemon: a process with its own directory, killed and restarted at the same address.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;
use crate::dice::Dice;

const LOG: &str = "daemon.log";
const FILE: &str = "leftfold.toml";

/// A daemon, killed on drop.
#[derive(Debug)]
pub(crate) struct Daemon {
    binary: PathBuf,
    directory: PathBuf,
    clock: Option<Clock>,
    process: Option<Child>,
}

impl Daemon {
    pub(crate) fn new(binary: &Path, directory: &Path, clock: Option<Clock>) -> Self {
        Self { binary: binary.to_owned(), directory: directory.to_owned(), clock, process: None }
    }

    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Starts the daemon and returns its process id. The daemon dies with the calling thread.
    pub(crate) fn start(&mut self) -> io::Result<u32> {
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join(LOG))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.binary).arg("serve");
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn()?;
        let id = child.id();
        self.process = Some(child);
        Ok(id)
    }

    /// Returns the process id, or 0.
    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.process {
            Some(child) => Ok(kill_process(Pid::from_child(child), signal)?),
            None => Ok(()),
        }
    }

    /// Returns the exit status if the daemon has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.process {
            Some(child) => child.try_wait(),
            None => Ok(None),
        }
    }

    /// Waits at most `most` and returns whether the daemon has ended.
    pub(crate) fn wait(&mut self, most: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        while self.ended()?.is_none() {
            if begun.elapsed() > most {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            // This fails if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn write_file(&self, text: &str) -> io::Result<()> {
        let new = self.directory.join("leftfold.toml.new");
        fs::write(&new, text)?;
        fs::rename(new, self.directory.join(FILE))
    }

    /// Returns the length of the log.
    pub(crate) fn logged(&self) -> u64 {
        fs::metadata(self.directory.join(LOG)).map_or(0, |log| log.len())
    }

    /// Returns the log after a place, at most 16 MiB.
    pub(crate) fn log_after(&self, place: u64) -> String {
        let mut text = Vec::new();
        let read = File::open(self.directory.join(LOG)).and_then(|mut log| {
            log.seek(SeekFrom::Start(place))?;
            log.take(16 << 20).read_to_end(&mut text)
        });
        if read.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Finds a free address outside the range of outgoing connections, so that it is still free after a
/// restart.
pub(crate) fn free_address(dice: &mut Dice) -> io::Result<SocketAddr> {
    const LOWEST: usize = 20_000;
    const PORTS: usize = 10_000;
    let mut last = None;
    for _ in 0..50 {
        let port = u16::try_from(LOWEST + dice.below(PORTS)).unwrap_or(u16::MAX);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no port is free")))
}
