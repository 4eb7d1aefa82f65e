//! A server that is one process with a port and a directory.

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

/// What there is to know of a kind of server.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The program.
    pub(crate) name: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// The environment variable that names another program.
    pub(crate) variable: &'static str,
    /// The command line, from the program, the directory and the port. It may begin with variables: `NAME=value`.
    pub(crate) command: fn(&Path, &Path, u16) -> Vec<OsString>,
    /// What it says when it takes connections.
    pub(crate) ready: &'static str,
    /// What it says when somebody else has its port.
    pub(crate) taken: &'static str,
}

/// A private server, gone when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    kind: &'static Kind,
    program: PathBuf,
    port: u16,
    /// What it needs to know besides its command line.
    environment: Vec<OsString>,
    process: Mutex<Option<Process>>,
    // After the process, so that it is ended when its directory is removed.
    place: Place,
}

impl Service {
    /// Starts one, on whatever port is free, with variables of the form `NAME=value`.
    pub(crate) async fn start(kind: &'static Kind, environment: Vec<OsString>) -> Result<Self, Error> {
        let found = spawn_blocking(|| crate::package::program(kind.name, kind.package, kind.variable)).await;
        let program = found.map_err(|error| Error::new(format!("looking for {}", kind.name), error))??;
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

    /// Ends it and removes its directory.
    pub(crate) async fn shutdown(self) -> Result<(), Error> {
        self.kill().await?;
        self.place.remove()
    }

    /// Its process id, if it runs.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process().as_mut().and_then(|process| matches!(process.ended(), Ok(None)).then(|| process.id()))
    }

    /// Kills it with SIGKILL, and returns when it is gone.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        let killed = spawn_blocking(move || process.kill()).await.unwrap_or_else(|error| Err(error.into()));
        killed.map_err(|error| Error::new(format!("killing {}", self.named()), error))
    }

    /// Has it stand still with SIGSTOP, and returns when it does.
    pub(crate) async fn freeze(&self) -> Result<(), Error> {
        let doing = format!("freezing {}", self.named());
        self.with_process(&doing, Process::freeze)?;
        until(&doing, || async { Ok(self.with_process(&doing, |process| process.stands())?.then_some(())) })
            .await
    }

    pub(crate) fn thaw(&self) -> Result<(), Error> {
        self.with_process(&format!("thawing {}", self.named()), Process::thaw)
    }

    fn with_process<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&mut Process) -> io::Result<T>,
    ) -> Result<T, Error> {
        match &mut *self.process() {
            Some(process) => act(process).map_err(|error| Error::new(doing, error)),
            None => Err(Error::new(doing, "it does not run; start it first")),
        }
    }

    /// Starts it again after it was killed: with its data, at its port.
    pub(crate) async fn restart(&self) -> Result<(), Error> {
        if self.process_id().is_some() {
            return Ok(());
        }
        let begun = tokio::time::Instant::now();
        // Somebody may have been given its port meanwhile; most do not keep it for long.
        while !self.launch().await? {
            if begun.elapsed() > PATIENCE {
                let doing = format!("starting {} again", self.named());
                return Err(Error::new(doing, "another process keeps its port; start a new server"));
            }
        }
        Ok(())
    }

    /// Starts it and waits until it takes connections; `false` if somebody else has its port.
    async fn launch(&self) -> Result<bool, Error> {
        let starting = format!("starting {}", self.named());
        let failed = |error| Error::new(&starting, error);
        let command = (self.kind.command)(&self.program, self.directory(), self.port);
        let arguments = [&self.environment[..], &command].concat();
        let process = Process::start(Path::new("env"), &arguments, &self.log()).await.map_err(failed)?;
        *self.process() = Some(process);
        until(&starting, || async {
            let said = self.said();
            let status = match &mut *self.process() {
                Some(process) => process.ended().map_err(failed)?,
                None => return Err(Error::new(&starting, "it was killed meanwhile")),
            };
            match status {
                None => Ok(said.contains(self.kind.ready).then_some(true)),
                Some(_) if said.contains(self.kind.taken) => Ok(Some(false)),
                Some(status) => {
                    Err(Error::new(&starting, format!("it ended with {status}\n{}", last_words(&said))))
                }
            }
        })
        .await
        .map_err(|error| Error::new(error, last_words(&self.said())))
    }

    fn named(&self) -> String {
        format!("{} at 127.0.0.1:{}", self.kind.name, self.port)
    }

    fn log(&self) -> PathBuf {
        self.directory().join("output.log")
    }

    fn said(&self) -> String {
        fs::read(self.log()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_words(said: &str) -> String {
    const LINES: usize = 20;
    let lines: Vec<_> = said.lines().collect();
    format!("the end of its log:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Error::new("looking for a free port", error))
}

/// The methods that all such servers have.
macro_rules! server {
    ($scheme:literal) => {
        impl Server {
            /// How clients address it.
            pub fn url(&self) -> String {
                format!("{}://127.0.0.1:{}", $scheme, self.0.port())
            }

            /// Its port, which stays the same.
            pub fn port(&self) -> u16 {
                self.0.port()
            }

            /// Its process id, if it runs.
            pub fn process_id(&self) -> Option<u32> {
                self.0.process_id()
            }

            /// The directory with its data and its log.
            pub fn directory(&self) -> &std::path::Path {
                self.0.directory()
            }

            /// Kills it with SIGKILL, and returns when it is gone.
            pub async fn kill(&self) -> Result<(), crate::Error> {
                self.0.kill().await
            }

            /// Ends it and removes its directory, as dropping it does, but says so if that fails.
            pub async fn shutdown(self) -> Result<(), crate::Error> {
                self.0.shutdown().await
            }

            /// Has it stand still with SIGSTOP, and returns when it does. Its connections stay open.
            pub async fn freeze(&self) -> Result<(), crate::Error> {
                self.0.freeze().await
            }

            /// Lets it go on after it was frozen.
            pub fn thaw(&self) -> Result<(), crate::Error> {
                self.0.thaw()
            }

            /// Starts it again after it was killed: with its data, at its port. One that runs is left as it is.
            pub async fn restart(&self) -> Result<(), crate::Error> {
                self.0.restart().await
            }
        }
    };
}
pub(crate) use server;
