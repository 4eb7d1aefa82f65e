//! The doctor: examines a store and everything that runs on it, and advises what to do about each
//! problem.
//!
//! A store reports about itself with [`Examine`]: settings, indexes, permissions, versions.
//! [`App::doctor`](crate::App::doctor) adds the engine's state: stalled projections, parked
//! documents, held events, reactions that do not run. Pure functions ([`clock`] and others) decide
//! what is too long and what to advise; the examination itself only reads.
//!
//! ```
//! use leftfold::inspect::doctor::{Severity, worst};
//! use leftfold::{Leftfold, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leftfold::Result<()> {
//! let app = Leftfold::on(Memory::default()).start().await?;
//! let findings = app.doctor().await?;
//! for finding in findings.iter().filter(|finding| finding.severity > Severity::Fine) {
//!     println!("{finding}");                              // what was found, and what to do
//! }
//! assert!(worst(&findings) < Severity::Wrong);
//! # app.stop().await;
//! # Ok(())
//! # }
//! ```

mod finding;
mod judge;
mod look;

use std::future::Future;

pub use finding::{Area, Finding, Severity, span, worst};
pub use judge::clock;
pub use look::reactions;
pub(crate) use look::{look_at, look_over};

use crate::documents::Collection;
use crate::error::Result;

/// A store that the doctor can examine.
#[diagnostic::on_unimplemented(
    message = "the doctor can't examine `{Self}`",
    label = "implement `leftfold::inspect::doctor::Examine` for it"
)]
pub trait Examine: Send + Sync {
    /// Returns findings about the store itself, and about [reactions](reactions()) if it keeps
    /// their tasks. It is read-only. Missing permissions are findings, too; an error means that the
    /// store could not be queried at all.
    ///
    /// No finding contains a password, or a URL that may contain one.
    fn examine(&self) -> impl Future<Output = Result<Vec<Finding>>> + Send;

    /// Returns the collections of all projections that have run on the store, by name.
    fn collections(&self) -> impl Future<Output = Result<Vec<Collection>>> + Send;

    /// Checks that the store can be read and written now. This is called several times a second, so
    /// it must be cheap. It may hang if the store does: callers use a short timeout.
    fn probe(&self) -> impl Future<Output = Result<()>> + Send;
}
