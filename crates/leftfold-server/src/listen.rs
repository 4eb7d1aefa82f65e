//! Connections: how many there may be, how slow they may be, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Stop;

/// How connections are taken.
#[derive(Clone)]
pub struct Listen {
    /// The most at the same time; others wait until one ends. 1,024 if not said.
    pub connections: usize,
    /// How long a client may take to say what it wants, or to shake hands; 10 seconds if not said.
    pub patience: Duration,
    /// How long connections have to end when the server stops; 10 seconds if not said.
    pub grace: Duration,
    /// The certificate and the key, if connections are encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for Listen {
    fn default() -> Self {
        let (patience, grace) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { connections: 1_024, patience, grace, tls: None }
    }
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, patience, grace, tls } = self;
        f.debug_struct("Listen")
            .field("connections", connections)
            .field("patience", patience)
            .field("grace", grace)
            .field("tls", &tls.is_some())
            .finish()
    }
}

impl Listen {
    /// Serves the routes until `until` is over. Then no connection is taken any more, requests under way are finished within the grace, and what
    /// is left is cut off.
    pub async fn serve(
        self,
        listener: TcpListener,
        routes: Router,
        stop: Stop,
        until: impl Future<Output = ()>,
    ) {
        let room = Arc::new(Semaphore::new(self.connections));
        let (ends, _) = watch::channel(false);
        let tls = self.tls.clone().map(TlsAcceptor::from);
        let mut open = JoinSet::new();
        let mut until = std::pin::pin!(until);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &room) => accepted,
                () = &mut until => break,
            };
            let (permit, stream, peer) = accepted;
            let (routes, ended, tls, patience) =
                (routes.clone(), ends.subscribe(), tls.clone(), self.patience);
            open.spawn(async move {
                match tls {
                    None => converse(stream, routes, ended, patience).await,
                    Some(tls) => match timeout(patience, tls.accept(stream)).await {
                        Ok(Ok(stream)) => converse(stream, routes, ended, patience).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "a handshake failed"),
                        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
                    },
                }
                drop(permit);
            });
            while open.try_join_next().is_some() {}
        }
        drop(listener);
        stop.stop();
        ends.send_replace(true);
        let all = async { while open.join_next().await.is_some() {} };
        if timeout(self.grace, all).await.is_err() {
            tracing::warn!("some connections did not end in time, and were cut off");
        }
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (Option<tokio::sync::OwnedSemaphorePermit>, TcpStream, SocketAddr) {
    // It is never closed.
    let permit = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are written at once; without this they may wait for more.
                let _ = stream.set_nodelay(true);
                return (permit, stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Answers the requests of one connection, until it ends or is told to.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
    mut ended: watch::Receiver<bool>,
    patience: Duration,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(100).max_buf_size(64 << 10);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let is_to_end = async { drop(ended.wait_for(|ends| *ends).await) };
    let done = tokio::select! {
        done = connection.as_mut() => done,
        () = is_to_end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, "a connection ended early");
    }
}
