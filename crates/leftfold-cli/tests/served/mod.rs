//! The daemon as a user sees it: the built binary in a directory of its own, called over HTTP.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod killed;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) fn leftfold(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leftfold")).current_dir(directory).args(args).output().unwrap()
}

#[track_caller]
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Creates a directory with the files of `init`, listening at any port.
pub(crate) fn initialized() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let made = leftfold(directory.path(), &["init"]);
    assert!(made.status.success(), "{}", said(&made));
    change(directory.path(), "127.0.0.1:7777", "127.0.0.1:0");
    directory
}

/// Changes a text in the file.
pub(crate) fn change(directory: &Path, from: &str, to: &str) {
    let file = directory.join("leftfold.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replacen(from, to, 1)).unwrap();
}

/// A daemon, killed when it is dropped.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    pub(crate) address: SocketAddr,
}

impl Daemon {
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_with(directory, "http", &[])
    }

    /// Starts a daemon with or without TLS, with more arguments.
    pub(crate) fn start_with(directory: &Path, scheme: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
        Self::run(command.current_dir(directory).arg("serve").args(args), scheme).0
    }

    /// Runs a command that serves. Returns the daemon, and its further output.
    pub(crate) fn run(command: &mut Command, scheme: &str) -> (Self, BufReader<ChildStdout>) {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut line, mut output) = (String::new(), BufReader::new(process.stdout.take().unwrap()));
        output.read_line(&mut line).unwrap();
        let address = line.strip_prefix(&format!("listening at {scheme}://"));
        let address = address.and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("it said {line:?}")).parse().unwrap();
        (Self { process, address }, output)
    }

    /// Returns the status and the body, or `None` if the daemon can't be reached or dies.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_mins(1))).ok()?;
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, &[], "").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A daemon, and its log.
pub(crate) struct Logged {
    pub(crate) daemon: Daemon,
    pub(crate) log: BufReader<ChildStderr>,
}

impl Logged {
    pub(crate) fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leftfold"));
        let command = command.current_dir(directory).arg("serve").stderr(Stdio::piped());
        let (mut daemon, _) = Daemon::run(command, "http");
        let log = BufReader::new(daemon.process.stderr.take().unwrap());
        Self { daemon, log }
    }

    /// Makes it reload its file, and waits until it logs the outcome.
    #[track_caller]
    pub(crate) fn reload(&mut self, outcome: &str) -> String {
        self.daemon.signal("-HUP");
        let mut line = String::new();
        while !line.contains("reloaded") {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "it ended");
        }
        assert!(line.contains(outcome), "{line}");
        line
    }

    #[track_caller]
    pub(crate) fn append(&self, stream: &str, event: &Value) -> String {
        let (status, body) =
            self.daemon.send("POST", &format!("/streams/{stream}"), &[JSON], &event.to_string()).unwrap();
        assert_eq!(status, 201, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["bookmark"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn document(&self, collection: &str, id: &str, token: &str) -> Value {
        self.daemon.get(&format!("/collections/{collection}/documents/{id}?at_least={token}"))
    }
}
