//! Private RabbitMQ servers. Guests may do anything.

use std::ffi::OsString;
use std::path::Path;

use crate::Error;
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

/// A private RabbitMQ server, gone when dropped.
#[derive(Debug)]
pub struct Server(Service);

server!(RABBITMQ, "amqp");
