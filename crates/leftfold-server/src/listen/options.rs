//! The options of a listener.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use super::Serving;
use crate::Stop;

/// The options of a listener.
#[derive(Clone)]
pub struct Listen {
    /// The maximum number of connections. The default is 1,024. Beyond it, the server closes the
    /// connection that has been idle longest. If none is idle, new connections wait until one ends.
    pub connections: usize,
    /// The maximum number of connections per address. The default is 512. Beyond it, the server
    /// closes the address' own idle connections. If it has none, the new connection is refused.
    /// Behind a proxy all clients have one address.
    pub connections_per_address: usize,
    /// The timeout for a client to send a request, finish the TLS handshake, or read a response.
    /// The default is 10 seconds. A large body has longer.
    pub patience: Duration,
    /// The maximum number of requests per second and address. The default is 10,000.
    pub requests_per_second: NonZeroU32,
    /// Host names that requests may be addressed to, besides those of this machine. The default is
    /// any name. A local server without tokens must set this, because a web page can make its own
    /// name resolve to this machine.
    pub hosts: Option<Vec<String>>,
    /// The time that connections have to end when the server stops. The default is 10 seconds.
    pub grace: Duration,
    /// The certificate and the key, if connections are encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for Listen {
    fn default() -> Self {
        let (patience, grace) = (Duration::from_secs(10), Duration::from_secs(10));
        let requests_per_second = NonZeroU32::MIN.saturating_add(9_999);
        Self {
            connections: 1_024,
            connections_per_address: 512,
            patience,
            requests_per_second,
            hosts: None,
            grace,
            tls: None,
        }
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, connections_per_address, patience, requests_per_second, hosts, grace, tls } =
            self;
        f.debug_struct("Listen")
            .field("connections", connections)
            .field("connections_per_address", connections_per_address)
            .field("patience", patience)
            .field("requests_per_second", requests_per_second)
            .field("hosts", hosts)
            .field("grace", grace)
            .field("tls", &tls.is_some())
            .finish()
    }
}

impl Listen {
    /// Serves the routes until `until` resolves. Then it accepts no more connections, finishes
    /// requests in progress within the grace period, and closes the rest.
    pub async fn serve(
        self,
        listener: TcpListener,
        routes: Router,
        stop: Stop,
        until: impl Future<Output = ()>,
    ) {
        Serving::new(self, routes, stop).run(listener, until).await;
    }
}
