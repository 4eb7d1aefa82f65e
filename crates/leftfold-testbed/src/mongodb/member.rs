//! One `mongod`.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::mongodb::Client;
use ::mongodb::bson::{Document, doc};
use ::mongodb::options::{ClientOptions, Credential, ServerAddress};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Error;
use crate::process::Process;
use crate::until::{PATIENCE, until};

/// The timeout for a response. A frozen member does not respond.
const ANSWER: Duration = Duration::from_secs(5);

/// A `mongod` with its directory and port, running or not.
#[derive(Debug)]
pub(super) struct Member {
    program: PathBuf,
    options: Vec<OsString>,
    directory: PathBuf,
    port: u16,
    process: Mutex<Option<Process>>,
}

impl Member {
    /// Creates a member without starting it.
    pub(super) fn new(program: PathBuf, options: Vec<OsString>, directory: PathBuf) -> Result<Self, Error> {
        fs::create_dir(&directory)
            .map_err(|error| Error::new(format!("creating {}", directory.display()), error))?;
        Ok(Self { program, options, directory, port: free_port()?, process: Mutex::new(None) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the host and port, as in addresses.
    pub(super) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts the member. [`listens`](Self::listens) tells whether it got its port.
    pub(super) async fn launch(&self) -> Result<(), Error> {
        let mut arguments = self.options.clone();
        arguments.extend(["--bind_ip", "127.0.0.1", "--port"].map(OsString::from));
        arguments.push(self.port.to_string().into());
        arguments.extend(["--dbpath".into(), self.directory.clone().into()]);
        let started = Process::start(&self.program, &arguments, &self.log()).await;
        let process = started.map_err(|error| Error::new(self.starting(), error))?;
        *self.process() = Some(process);
        Ok(())
    }

    /// Starts the member on another port.
    pub(super) async fn launch_elsewhere(&mut self) -> Result<(), Error> {
        self.port = free_port()?;
        self.launch().await
    }

    /// Waits until the member accepts connections. Returns `false` if another process has its port.
    pub(super) async fn listens(&self) -> Result<bool, Error> {
        /// The exit status of a `mongod` that can't bind its port.
        const NO_PORT: i32 = 48;
        // Search the log instead of connecting: another process might accept the connection.
        const READY: &str = "\"Waiting for connections\"";
        let starting = self.starting();
        until(&starting, || async {
            let failed = |error| Error::new(&starting, error);
            let status = match &mut *self.process() {
                Some(process) => process.ended().map_err(failed)?,
                None => return Err(Error::new(&starting, "it was killed in the meantime")),
            };
            match status {
                None => Ok(self.log_text().contains(READY).then_some(true)),
                Some(status) if status.code() == Some(NO_PORT) => Ok(Some(false)),
                Some(status) => {
                    Err(Error::new(&starting, format!("it ended with {status}\n{}", self.last_lines())))
                }
            }
        })
        .await
    }

    pub(super) fn runs(&self) -> bool {
        self.process().as_mut().is_some_and(runs)
    }

    /// Returns whether the member runs and is not frozen.
    pub(super) fn can_answer(&self) -> bool {
        self.process().as_mut().is_some_and(|process| runs(process) && !process.is_frozen())
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process().as_mut().and_then(|process| runs(process).then(|| process.id()))
    }

    /// Kills the process and waits until it is gone.
    pub(super) async fn kill(&self) -> Result<(), Error> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        let killed = spawn_blocking(move || process.kill()).await.unwrap_or_else(|error| Err(error.into()));
        killed.map_err(|error| Error::new(format!("killing mongod at {}", self.host()), error))
    }

    /// Stops the process with SIGSTOP and waits until it has stopped.
    pub(super) async fn freeze(&self) -> Result<(), Error> {
        let doing = format!("freezing mongod at {}", self.host());
        self.with_process(&doing, Process::freeze)?;
        let has_stopped = || self.with_process(&doing, |process| process.has_stopped());
        until(&doing, || async { Ok(has_stopped()?.then_some(())) }).await
    }

    pub(super) fn thaw(&self) -> Result<(), Error> {
        self.with_process(&format!("thawing mongod at {}", self.host()), Process::thaw)
    }

    /// Returns a client of this member alone. It belongs to the runtime in which it is created.
    pub(super) fn client(&self, credential: Option<Credential>) -> Result<Client, Error> {
        let host = Ipv4Addr::LOCALHOST.to_string();
        let mut options = ClientOptions::builder()
            .hosts(vec![ServerAddress::Tcp { host, port: Some(self.port) }])
            .direct_connection(true)
            .server_selection_timeout(ANSWER)
            .connect_timeout(ANSWER)
            .build();
        options.credential = credential;
        Client::with_options(options)
            .map_err(|error| Error::new(format!("creating a client of {}", self.host()), error))
    }

    /// Runs a command on the database `admin`.
    pub(super) async fn command(
        &self,
        credential: Option<Credential>,
        command: Document,
    ) -> Result<Document, Error> {
        let name = command.keys().next().cloned().unwrap_or_default();
        let doing = format!("running the command {name} at {}", self.host());
        let admin = self.client(credential)?.database("admin");
        let answer = timeout(PATIENCE, admin.run_command(command).into_future()).await;
        let late = |_| Error::new(&doing, format!("no response within {PATIENCE:?}"));
        answer.map_err(late)?.map_err(|error| Error::new(&doing, error.kind))
    }

    /// Returns the end of the log.
    pub(super) fn last_lines(&self) -> String {
        const LINES: usize = 12;
        let log = self.log_text();
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        format!("the end of its log:\n{}", last.join("\n"))
    }

    fn starting(&self) -> String {
        format!("starting mongod at {}", self.host())
    }

    fn log_text(&self) -> String {
        fs::read(self.log()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    fn with_process<T>(
        &self,
        doing: &str,
        act: impl FnOnce(&mut Process) -> std::io::Result<T>,
    ) -> Result<T, Error> {
        match &mut *self.process() {
            Some(process) => act(process).map_err(|error| Error::new(doing, error)),
            None => Err(Error::new(doing, "the server does not run; start it first")),
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the process still runs. It may have ended by itself.
fn runs(process: &mut Process) -> bool {
    matches!(process.ended(), Ok(None))
}

/// Returns the member's response to `hello`, if it responds.
pub(super) async fn hello(client: &Client) -> Option<Document> {
    let admin = client.database("admin");
    timeout(ANSWER, admin.run_command(doc! { "hello": 1 }).into_future()).await.ok()?.ok()
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Error::new("finding a free port", error))
}

#[cfg(all(test, feature = "servers"))]
mod tests {
    use super::*;
    use crate::mongodb::fetch;

    #[tokio::test]
    async fn a_port_that_somebody_else_has_is_not_insisted_on() {
        let place = tempfile::tempdir().unwrap();
        let mongod = fetch(|_| {}).unwrap();
        let mut member = Member::new(mongod, Vec::new(), place.path().join("member")).unwrap();
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, member.port())).unwrap();
        member.launch().await.unwrap();
        assert!(!member.listens().await.unwrap());
        member.launch_elsewhere().await.unwrap();
        assert!(member.listens().await.unwrap());
        assert_ne!(member.port(), stranger.local_addr().unwrap().port());
    }

    #[tokio::test]
    async fn one_that_does_not_start_says_why() {
        let place = tempfile::tempdir().unwrap();
        let options = vec!["--no-such-option".into()];
        let member = Member::new(fetch(|_| {}).unwrap(), options, place.path().join("member")).unwrap();
        member.launch().await.unwrap();
        let failed = member.listens().await.unwrap_err().to_string();
        assert!(failed.contains("starting mongod at 127.0.0.1:"), "{failed}");
        assert!(failed.contains("unrecognised option '--no-such-option'"), "{failed}");
    }
}
