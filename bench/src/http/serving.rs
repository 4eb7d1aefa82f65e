//! Servers in separate processes, as users run them.

use std::io::{Read as _, Write as _, stdin, stdout};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::process::Stdio;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use clap::ValueEnum;
use leftfold::Leftfold;
use leftfold_server::{Backend, Listen, Service};
use shopping_cart::CartDetails;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::report::Result;

/// The content that a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// A store without projections.
    Events,
    /// A store with folded carts.
    Documents,
    /// As many bytes as the argument says, from a bare handler.
    Bare,
}

/// A server in another process. It stops when its standard input is closed.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start(argument: &str, role: Role) -> Result<Self> {
        let role = role.to_possible_value().ok_or("the role has no command-line name")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve-as", argument, role.get_name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines =
            BufReader::new(child.stdout.take().ok_or("the process has no standard output")?).lines();
        let address = lines.next_line().await?.ok_or("the server ended before it printed its address")?;
        Ok(Self { child, address: address.parse()? })
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let ended = self.child.wait().await?;
        if ended.success() { Ok(()) } else { Err(format!("a server failed: {ended}").into()) }
    }
}

/// Prints the address and serves until standard input is closed.
pub(crate) async fn run_role(argument: &str, role: Role) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    if role == Role::Bare {
        return bare(listener, argument.parse()?).await;
    }
    if argument.starts_with("mongodb") {
        serve(leftfold_mongodb::Mongo::connect(argument).await?, role, listener).await
    } else {
        serve(leftfold_sqlite::Sqlite::open(argument).await?, role, listener).await
    }
}

/// Serves with all middleware of a real server. Only the rate limit per address is raised, because
/// all requests come from one address here.
async fn serve<S: Backend>(store: S, role: Role, listener: TcpListener) -> Result<()> {
    let app = Leftfold::on(store);
    let app = if role == Role::Documents { app.projection(CartDetails) } else { app }.start().await?;
    app.caught_up().await?;
    let (routes, stop) = Service::new(app.clone()).await?.router();
    let listen =
        Listen { requests_per_second: NonZeroU32::MAX, hosts: Some(Vec::new()), ..Listen::default() };
    print_address(&listener)?;
    listen.serve(listener, routes, stop, input_ended()).await;
    app.stop().await;
    Ok(())
}

async fn bare(listener: TcpListener, bytes: usize) -> Result<()> {
    let body = format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)));
    let answer = move || async move { ([(CONTENT_TYPE, "application/json")], body) };
    print_address(&listener)?;
    let serving =
        axum::serve(listener, Router::new().route("/collections/{collection}/documents/{id}", get(answer)));
    Ok(serving.with_graceful_shutdown(input_ended()).await?)
}

/// Prints the address for the parent process.
fn print_address(listener: &TcpListener) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    Ok(out.flush()?)
}

async fn input_ended() {
    // Any result, even an error, means that the parent process is gone.
    let _ = tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await;
}
