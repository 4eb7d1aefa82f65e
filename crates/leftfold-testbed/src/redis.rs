//! Private Redis servers that store acknowledged writes on disk.

use crate::Error;
use crate::service::{Kind, Service, server};

static REDIS: Kind = Kind {
    name: "redis-server",
    package: "redis-server",
    variable: "LEFTFOLD_REDIS_SERVER",
    command: |program, directory, port| {
        let mut command = vec![program.into(), "--port".into(), port.to_string().into()];
        command.extend(
            ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always"].map(Into::into),
        );
        command.extend(["--save", "", "--daemonize", "no", "--dir"].map(Into::into));
        command.push(directory.into());
        command
    },
    ready: "Ready to accept connections",
    taken: "Address already in use",
};

/// A private Redis server, stopped on drop.
#[derive(Debug)]
pub struct Server(Service);

impl Server {
    /// Starts a server. It accepts connections when this returns.
    pub async fn start() -> Result<Self, Error> {
        Ok(Self(Service::start(&REDIS, Vec::new()).await?))
    }
}

server!("redis");
