//! Private NATS servers with JetStream, which stores streams in files.

use crate::Error;
use crate::service::{Kind, Service, server};

static NATS: Kind = Kind {
    name: "nats-server",
    package: "nats-server",
    variable: "LEFTFOLD_NATS_SERVER",
    command: |program, directory, port| {
        let mut command = vec![program.into(), "--port".into(), port.to_string().into()];
        command.extend(["--addr", "127.0.0.1", "--jetstream", "--store_dir"].map(Into::into));
        command.push(directory.into());
        command
    },
    ready: "Server is ready",
    taken: "address already in use",
};

/// A private NATS server, stopped on drop.
#[derive(Debug)]
pub struct Server(Service);

impl Server {
    /// Starts a server. It accepts connections when this returns.
    pub async fn start() -> Result<Self, Error> {
        Ok(Self(Service::start(&NATS, Vec::new()).await?))
    }
}

server!("nats");
