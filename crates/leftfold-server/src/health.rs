//! A listener for liveness and readiness probes. It has its own thread and runtime, so it responds
//! even if the rest of the process is blocked. It needs no token and reveals no reasons.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use tokio::sync::oneshot;

use crate::listen::Listen;
use crate::ready::Readiness;
use crate::{Stop, api};

/// The maximum number of connections, and the time limit of each.
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);

/// A listener that serves `/healthz` and `/readyz` until it is dropped.
#[derive(Debug)]
pub struct Health {
    address: SocketAddr,
    /// Dropping the sender ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Health {
    /// Starts listening at an address.
    pub fn listen(address: SocketAddr, readiness: Readiness) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let answer = async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "using the health listener failed"),
            };
            let listen = Listen {
                connections: CONNECTIONS,
                patience: PATIENCE,
                grace: Duration::ZERO,
                ..Listen::default()
            };
            // An error means that the sender was dropped, which is the signal to stop.
            listen.serve(listener, routes(readiness), Stop::default(), async { drop(stopped.await) }).await;
        };
        let thread = std::thread::Builder::new().name("leftfold-health".to_owned());
        thread.spawn(move || runtime.block_on(answer))?;
        Ok(Self { address, _stop: stop })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn routes(readiness: Readiness) -> Router {
    let ready = |Query(query): Query<api::Ready>| async move {
        match (readiness.refusal(), readiness.troubles().is_empty()) {
            (Some(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            (None, true) => (StatusCode::OK, "ready\n"),
            (None, false) if query.is_strict() => (StatusCode::SERVICE_UNAVAILABLE, "degraded\n"),
            (None, false) => (StatusCode::OK, "degraded\n"),
        }
    };
    Router::new().route("/healthz", get(|| async { "alive\n" })).route("/readyz", get(ready)).fallback(
        |_: Uri| async {
            (StatusCode::NOT_FOUND, "no such path; this listener serves only /healthz and /readyz\n")
        },
    )
}
