//! Real servers for tests and benchmarks. Each is private, in a temporary directory, on a free
//! loopback port, and stops with the process that started it.
//!
//! A server stops when its value is dropped, and also when the process ends in another way: by
//! SIGKILL, or with the server in a `static`. Its directory then remains until the next server
//! starts.
//!
//! [`redis`], [`nats`] and [`rabbitmq`] servers are one process each. They keep acknowledged data
//! on disk; only [`rabbitmq`] may lose acknowledgements of deliveries when it is killed. Their
//! programs are Debian packages, which are installed on demand without starting a service. An
//! environment variable such as `LEFTFOLD_REDIS_SERVER` names another program.
//!
//! Servers run on Linux only, because stopping them with their process needs a Linux feature.
//!
#![cfg_attr(feature = "servers", doc = "```")]
#![cfg_attr(not(feature = "servers"), doc = "```no_run")]
//! use leftfold_testbed::redis::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leftfold_testbed::Error> {
//! let server = Server::start().await?;
//! println!("{}", server.url());
//! server.kill().await?;
//! server.restart().await?; // with its data, on its port
//! # Ok(())
//! # }
//! ```

mod error;
#[cfg(feature = "mongodb")]
pub mod mongodb;
pub mod nats;
mod package;
mod place;
mod process;
pub mod rabbitmq;
pub mod redis;
mod service;
mod until;

pub use crate::error::Error;
pub use crate::package::program;
