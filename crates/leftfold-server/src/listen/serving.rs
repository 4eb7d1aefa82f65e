//! A server that accepts connections, and whose routes can be replaced.

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Listen;
use super::accept::{accept, refuse};
use super::connection::Connection;
use crate::Stop;
use crate::gate::Gate;
use crate::room::Room;

/// A server whose routes and options can be replaced while it runs.
pub struct Serving(watch::Sender<Arc<Snapshot>>);

/// The current routes and options.
pub(super) struct Snapshot {
    listen: Listen,
    pub(super) routes: Router,
    stop: Stop,
    pub(super) gate: Gate,
    tls: Option<TlsAcceptor>,
}

impl Snapshot {
    fn new(listen: Listen, routes: Router, stop: Stop) -> Arc<Self> {
        let (gate, tls) = (Gate::new(&listen), listen.tls.clone().map(TlsAcceptor::from));
        Arc::new(Self { listen, routes, stop, gate, tls })
    }
}

impl Serving {
    /// Creates a server that does not listen yet.
    pub fn new(listen: Listen, routes: Router, stop: Stop) -> Self {
        Self(watch::Sender::new(Snapshot::new(listen, routes, stop)))
    }

    /// Replaces the routes for all further requests, including those on open connections. The old
    /// routes finish the requests in progress, but their event streams end. The connection limits
    /// and the grace period do not change.
    pub fn replace(&self, listen: Listen, routes: Router, stop: Stop) {
        self.0.send_replace(Snapshot::new(listen, routes, stop)).stop.stop();
    }

    /// Serves until `until` resolves, as [`Listen::serve`] does.
    pub async fn run(&self, listener: TcpListener, until: impl Future<Output = ()>) {
        let Listen { connections, connections_per_address, grace, .. } = self.0.borrow().listen;
        let room = Room::new(connections, connections_per_address);
        let (ends, _) = watch::channel(false);
        let mut open = JoinSet::new();
        let mut until = std::pin::pin!(until);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &room) => accepted,
                () = &mut until => break,
            };
            let (seat, stream, peer) = accepted;
            let (ended, snapshot) = (ends.subscribe(), self.0.borrow().clone());
            while open.try_join_next().is_some() {}
            let Some(seat) = seat else {
                let is_plain = snapshot.tls.is_none();
                open.spawn(refuse(stream, peer, is_plain));
                continue;
            };
            let patience = snapshot.listen.patience;
            let connection = Connection { served: self.0.subscribe(), peer, patience, seat: Arc::new(seat) };
            open.spawn(async move {
                let Some(tls) = &snapshot.tls else { return connection.run(stream, ended).await };
                let seat = Arc::clone(&connection.seat);
                let handshake = tokio::select! {
                    handshake = timeout(patience, tls.accept(stream)) => handshake,
                    () = seat.closed() => return,
                };
                match handshake {
                    Ok(Ok(stream)) => connection.run(stream, ended).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                }
            });
        }
        drop(listener);
        self.0.borrow().stop.stop();
        ends.send_replace(true);
        let all = async { while open.join_next().await.is_some() {} };
        if timeout(grace, all).await.is_err() {
            tracing::warn!("closing connections that did not end in time");
        }
    }
}
