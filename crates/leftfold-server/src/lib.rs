//! Leftfold over HTTP: ingests events, serves documents, and offers the operations for both.
//!
//! [`Service`] wraps an application. [`router`](Service::router) returns its routes, which axum can
//! serve alone or beside other routes. [`Listen`] serves them with limits for hostile clients.
//! `/openapi.json` describes the API. Failures are problem details (RFC 9457).
//!
//! ```
//! use std::future::ready;
//!
//! use leftfold::{Leftfold, Memory};
//! use leftfold_server::{Listen, Service, bind};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Leftfold::on(Memory::default()).start().await?;
//! let (routes, stop) = Service::new(app).await?.router();
//! let listener = bind("127.0.0.1:0".parse()?)?;
//! let until = ready(()); // such as tokio::signal::ctrl_c()
//! Listen::default().serve(listener, routes, stop, until).await;
//! # Ok(())
//! # }
//! ```

mod access;
mod api;
mod expiry;
mod gate;
mod health;
mod idempotency;
mod listen;
mod memory;
mod meters;
mod problem;
mod process;
mod rate;
mod ready;
mod room;
mod service;
mod slow;
mod spans;
mod strict;
mod tls;
mod unreadable;

pub use self::access::{Scope, Token};
pub use self::expiry::expires;
pub use self::health::Health;
pub use self::listen::{Listen, Serving, bind};
pub use self::process::resident_bytes;
pub use self::ready::{Readiness, WatchedFeed};
pub(crate) use self::service::Shared;
pub use self::service::{Backend, ServerLimits, Service, Stop};
pub use self::tls::tls;
