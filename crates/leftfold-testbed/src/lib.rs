//! Real servers for tests and benchmarks: each private, in a temporary directory, on a free loopback port, ended with the
//! process that started it.
//!
//! ```no_run
//! # async fn test() -> Result<(), leftfold_testbed::Error> {
//! use leftfold_testbed::mongodb::Server;
//!
//! let server = Server::replica_set(3).await?;
//! println!("{}", server.url());
//! server.kill(server.primary().await?).await?;
//! server.primary().await?; // another one
//! # Ok(())
//! # }
//! ```
//!
//! [`redis`], [`nats`] and [`rabbitmq`] servers are one process each, and keep on disk what they have acknowledged; [`rabbitmq`]'s
//! acknowledgements of deliveries alone may be forgotten when it is killed. Their programs are Debian packages, installed where they are
//! missing without starting any service; an environment variable such as `LEFTFOLD_REDIS_SERVER` names another program.
//!
//! A server is gone when its value is dropped; also when the process ends in any other way, with SIGKILL or with the server
//! in a `static`. Its directory then stays behind until somebody starts the next server.
//!
//! Servers run on Linux: what ends them with their process is Linux's own.

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
