//! Private RabbitMQ servers. The guest user has all rights.

use std::ffi::OsString;
use std::path::Path;

use crate::Error;
use crate::place::Place;
use crate::process::Process;
use crate::service::{Kind, Service, free_port, server};

static RABBITMQ: Kind = Kind {
    name: "rabbitmq-server",
    package: "rabbitmq-server",
    variable: "LEFTFOLD_RABBITMQ_SERVER",
    command,
    ready: "Server startup complete",
    taken: "eaddrinuse",
};

/// A private RabbitMQ server, stopped on drop.
#[derive(Debug)]
pub struct Server(Service, #[expect(dead_code, reason = "it is kept for as long as the server")] NameServer);

/// Erlang's name server (epmd). The RabbitMQ server would otherwise start one that outlives it.
#[derive(Debug)]
struct NameServer {
    _process: Process,
    _place: Place,
}

impl Server {
    /// Starts a server. It accepts connections when this returns.
    pub async fn start() -> Result<Self, Error> {
        // Install the missing packages, including epmd.
        let found = tokio::task::spawn_blocking(|| {
            crate::package::program(RABBITMQ.name, RABBITMQ.package, RABBITMQ.variable)
        });
        found.await.map_err(|error| Error::new("finding rabbitmq-server", error))??;
        let port = free_port()?;
        let place = Place::new()?;
        let arguments = ["-port".into(), port.to_string().into(), "-address".into(), "127.0.0.1".into()];
        let process = Process::start(Path::new("epmd"), &arguments, &place.path().join("output.log")).await;
        let process =
            process.map_err(|error| Error::new(format!("starting epmd at 127.0.0.1:{port}"), error))?;
        let names = NameServer { _process: process, _place: place };
        let environment = vec![format!("ERL_EPMD_PORT={port}").into(), "ERL_EPMD_ADDRESS=127.0.0.1".into()];
        Ok(Self(Service::start(&RABBITMQ, environment).await?, names))
    }
}

server!("amqp");

fn command(program: &Path, directory: &Path, port: u16) -> Vec<OsString> {
    let inside = |variable: &str, name: &str| format!("{variable}={}", directory.join(name).display());
    // The port for connections between cluster nodes.
    let cluster = free_port().unwrap_or(port.wrapping_add(1));
    let variables = [
        format!("HOME={}", directory.display()),
        inside("RABBITMQ_MNESIA_BASE", "data"),
        inside("RABBITMQ_LOG_BASE", "log"),
        inside("RABBITMQ_PID_FILE", "pid"),
        inside("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
        inside("RABBITMQ_CONFIG_FILE", "none"),
        inside("RABBITMQ_ADVANCED_CONFIG_FILE", "none.config"),
        inside("RABBITMQ_CONF_ENV_FILE", "none.env"),
        format!("RABBITMQ_NODENAME=leftfold-{port}@localhost"),
        "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1".to_owned(),
        format!("RABBITMQ_NODE_PORT={port}"),
        format!("RABBITMQ_DIST_PORT={cluster}"),
        "RABBITMQ_LOGS=-".to_owned(),
        // With this the script replaces itself with the server instead of starting it and waiting.
        "RABBITMQ_ALLOW_INPUT=1".to_owned(),
        // Two cores are enough, and schedulers must not busy-wait.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +Q 4096".to_owned(),
    ];
    let mut command: Vec<OsString> = variables.map(OsString::from).into();
    command.extend([program.into(), "-noinput".into()]);
    command
}
