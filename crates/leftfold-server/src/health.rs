//! A listener for those who only want to know whether the process lives and is ready: on a thread and a runtime of its own, so that it answers whatever
//! happens elsewhere. It needs no token, and tells no reasons.

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

/// How many may ask at the same time, and how long each may take.
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);

/// A listener that answers `/healthz` and `/readyz`, until it is dropped.
#[derive(Debug)]
pub struct Health {
    address: SocketAddr,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Health {
    /// Listens at an address.
    pub fn listen(address: SocketAddr, readiness: Readiness) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let answer = async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "the listener for health can't be used"),
            };
            let listen = Listen {
                connections: CONNECTIONS,
                patience: PATIENCE,
                grace: Duration::ZERO,
                ..Listen::default()
            };
            // An error means that it was dropped, which is what is waited for.
            listen.serve(listener, routes(readiness), Stop::default(), async { drop(stopped.await) }).await;
        };
        let thread = std::thread::Builder::new().name("leftfold-health".to_owned());
        thread.spawn(move || runtime.block_on(answer))?;
        Ok(Self { address, _stop: stop })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn routes(readiness: Readiness) -> Router {
    let ready = |Query(asked): Query<api::Ready>| async move {
        match (readiness.refusal(), readiness.troubles().is_empty()) {
            (Some(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            (None, true) => (StatusCode::OK, "ready\n"),
            (None, false) if asked.is_strict() => (StatusCode::SERVICE_UNAVAILABLE, "degraded\n"),
            (None, false) => (StatusCode::OK, "degraded\n"),
        }
    };
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .fallback(|_: Uri| async { (StatusCode::NOT_FOUND, "only /healthz and /readyz are answered here\n") })
}
