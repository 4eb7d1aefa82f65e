//! Real servers for manual tests: `fetch` installs them, `mongodb` starts one and waits for Ctrl-C.

mod args;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use leftfold_testbed::Error;
use leftfold_testbed::mongodb::{self, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Action, Cli, MongoDb};

const FAILED: u8 = 3;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let done = match Cli::parse().action {
        Action::Fetch => {
            mongodb::fetch(|step| eprintln!("{step}")).map(|_| ExitCode::SUCCESS).map_err(Failure::from)
        }
        Action::MongoDb(wanted) => serve(&wanted),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(FAILED)
    })
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("starting the runtime: {0}")]
    Runtime(io::Error),
    #[error("writing to standard output: {0}")]
    Output(io::Error),
}

/// Starts a server and stops it on a signal.
fn serve(wanted: &MongoDb) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::Runtime)?.block_on(async {
        let server = tokio::select! { biased;
            () = interrupted() => return Ok(ExitCode::from(INTERRUPTED)),
            server = start(wanted) => server?,
        };
        print(&server, wanted.json).map_err(Failure::Output)?;
        interrupted().await;
        server.shutdown().await?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn start(wanted: &MongoDb) -> Result<Server, Error> {
    if wanted.standalone { Server::standalone().await } else { Server::replica_set(wanted.members).await }
}

fn print(server: &Server, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let members = (0..server.members())
            .map(|member| json!({ "port": server.port(member).ok(), "process": server.process_id(member).ok().flatten() }));
        let members: Vec<_> = members.collect();
        let shown = json!({ "url": server.url(), "directory": server.directory(), "members": members });
        writeln!(out, "{shown}")?;
    } else {
        writeln!(out, "{}", server.url())?;
        eprintln!("data and logs are in {}; press Ctrl-C to stop the server", server.directory().display());
    }
    out.flush()
}

/// Waits for SIGTERM or Ctrl-C.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
