//! A server that consists of one process with a port and a directory.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use tokio::task::spawn_blocking;

use crate::Error;
use crate::place::Place;
use crate::process::Process;
use crate::until::{PATIENCE, until};

/// The description of a kind of server.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The program.
    pub(crate) name: &'static str,
    /// The Debian package that contains it.
    pub(crate) package: &'static str,
    /// The environment variable that names another program.
    pub(crate) variable: &'static str,
    /// Builds the command line from the program, the directory and the port. It may begin with
    /// environment variables: `NAME=value`.
    pub(crate) command: fn(&Path, &Path, u16) -> Vec<OsString>,
    /// The log text that shows that the server accepts connections.
    pub(crate) ready: &'static str,
    /// The log text that shows that its port is taken.
    pub(crate) taken: &'static str,
}

/// A private server, stopped on drop.
#[derive(Debug)]
pub(crate) struct Service {
    kind: &'static Kind,
    program: PathBuf,
    port: u16,
    /// Environment variables of the form `NAME=value`.
    environment: Vec<OsString>,
    process: Mutex<Option<Process>>,
    // Declared after the process, so that the process ends before its directory is removed.
    place: Place,
}

impl Service {
    /// Starts a server on a free port, with variables of the form `NAME=value`.
    pub(crate) async fn start(kind: &'static Kind, environment: Vec<OsString>) -> Result<Self, Error> {
        let found = spawn_blocking(|| crate::package::program(kind.name, kind.package, kind.variable)).await;
        let program = found.map_err(|error| Error::new(format!("finding {}", kind.name), error))??;
        let place = Place::new()?;
        let process = Mutex::new(None);
        let mut service = Self { kind, program, port: free_port()?, environment, process, place };
        while !service.launch().await? {
            service.port = free_port()?;
        }
        Ok(service)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn directory(&self) -> &Path {
        self.place.path()
    }

    /// Stops the server and removes its directory.
    pub(crate) async fn shutdown(self) -> Result<(), Error> {
        self.kill().await?;
        self.place.remove()
    }

    /// Returns the process id, if the server runs.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process().as_mut().and_then(|process| matches!(process.ended(), Ok(None)).then(|| process.id()))
    }

    /// Kills the server with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        let killed = spawn_blocking(move || process.kill()).await.unwrap_or_else(|error| Err(error.into()));
        killed.map_err(|error| Error::new(format!("killing {}", self.shown()), error))
    }

    /// Stops the server with SIGSTOP and waits until it has stopped.
    pub(crate) async fn freeze(&self) -> Result<(), Error> {
        let doing = format!("freezing {}", self.shown());
        self.with_process(&doing, Process::freeze)?;
        until(&doing, || async {
            Ok(self.with_process(&doing, |process| process.has_stopped())?.then_some(()))
        })
        .await
    }

    pub(crate) fn thaw(&self) -> Result<(), Error> {
        self.with_process(&format!("thawing {}", self.shown()), Process::thaw)
    }

    fn with_process<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&mut Process) -> io::Result<T>,
    ) -> Result<T, Error> {
        match &mut *self.process() {
            Some(process) => act(process).map_err(|error| Error::new(doing, error)),
            None => Err(Error::new(doing, "the server does not run; start it first")),
        }
    }

    /// Starts a killed server again, with its data and on its port.
    pub(crate) async fn restart(&self) -> Result<(), Error> {
        if self.process_id().is_some() {
            return Ok(());
        }
        let begun = tokio::time::Instant::now();
        // Another process may have got the port meanwhile. Most processes release it soon.
        while !self.launch().await? {
            if begun.elapsed() > PATIENCE {
                let doing = format!("starting {} again", self.shown());
                return Err(Error::new(doing, "another process keeps its port; start a new server"));
            }
        }
        Ok(())
    }

    /// Starts the process and waits until it accepts connections. Returns `false` if another
    /// process has its port.
    async fn launch(&self) -> Result<bool, Error> {
        let starting = format!("starting {}", self.shown());
        let failed = |error| Error::new(&starting, error);
        let command = (self.kind.command)(&self.program, self.directory(), self.port);
        let arguments = [&self.environment[..], &command].concat();
        let process = Process::start(Path::new("env"), &arguments, &self.log()).await.map_err(failed)?;
        *self.process() = Some(process);
        until(&starting, || async {
            let log = self.log_text();
            let status = match &mut *self.process() {
                Some(process) => process.ended().map_err(failed)?,
                None => return Err(Error::new(&starting, "it was killed in the meantime")),
            };
            match status {
                None => Ok(log.contains(self.kind.ready).then_some(true)),
                Some(_) if log.contains(self.kind.taken) => Ok(Some(false)),
                Some(status) => {
                    Err(Error::new(&starting, format!("it ended with {status}\n{}", last_lines(&log))))
                }
            }
        })
        .await
        .map_err(|error| Error::new(error, last_lines(&self.log_text())))
    }

    fn shown(&self) -> String {
        format!("{} at 127.0.0.1:{}", self.kind.name, self.port)
    }

    fn log(&self) -> PathBuf {
        self.directory().join("output.log")
    }

    fn log_text(&self) -> String {
        fs::read(self.log()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_lines(log: &str) -> String {
    const LINES: usize = 20;
    let lines: Vec<_> = log.lines().collect();
    format!("the end of its log:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Error::new("finding a free port", error))
}

/// Defines the methods that all such servers have.
macro_rules! server {
    ($scheme:literal) => {
        impl Server {
            /// Returns the URL for clients.
            pub fn url(&self) -> String {
                format!("{}://127.0.0.1:{}", $scheme, self.0.port())
            }

            /// Returns the port, which never changes.
            pub fn port(&self) -> u16 {
                self.0.port()
            }

            /// Returns the process id, if the server runs.
            pub fn process_id(&self) -> Option<u32> {
                self.0.process_id()
            }

            /// Returns the directory with the data and the log.
            pub fn directory(&self) -> &std::path::Path {
                self.0.directory()
            }

            /// Kills the server with SIGKILL and waits until it is gone.
            pub async fn kill(&self) -> Result<(), crate::Error> {
                self.0.kill().await
            }

            /// Stops the server and removes its directory, as a drop does, but reports errors.
            pub async fn shutdown(self) -> Result<(), crate::Error> {
                self.0.shutdown().await
            }

            /// Stops the server with SIGSTOP and waits until it has stopped. Its connections stay
            /// open.
            pub async fn freeze(&self) -> Result<(), crate::Error> {
                self.0.freeze().await
            }

            /// Continues a frozen server.
            pub fn thaw(&self) -> Result<(), crate::Error> {
                self.0.thaw()
            }

            /// Starts a killed server again, with its data and on its port. Does nothing if the
            /// server runs.
            pub async fn restart(&self) -> Result<(), crate::Error> {
                self.0.restart().await
            }
        }
    };
}
pub(crate) use server;
