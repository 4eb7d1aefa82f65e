//! The doctor: looks over a store and all that runs on it, and says of each thing that is not as it should be what to do.
//!
//! A store says by [`Examine`] what it knows of itself: settings, indexes, rights, versions. [`App::doctor`](crate::App::doctor) adds
//! what the engine knows: projections that stand still, documents that are parked, events that wait, reactions that do not run. What
//! is too long, and what to say then, is decided by pure functions ([`clock`], and those below); whoever examines only asks.
//!
//! ```
//! use leftfold::doctor::{Severity, worst};
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

use crate::error::Result;

/// A store that can be looked over.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be looked over by the doctor",
    label = "implement `leftfold::doctor::Examine` for it"
)]
pub trait Examine: Send + Sync {
    /// What is to be said of the store itself, and of [reactions](reactions()) if it keeps their tasks. Nothing is changed. What this
    /// program has no right to look at is a finding, too; an error means that the store could not be asked at all.
    ///
    /// No finding shows a password, or a URL that may hold one.
    fn examine(&self) -> impl Future<Output = Result<Vec<Finding>>> + Send;

    /// Whether it can be read and written now, or why not. This is asked several times a second, so it must cost next to nothing; it may hang where
    /// the store does, as whoever asks gives up soon.
    fn probe(&self) -> impl Future<Output = Result<()>> + Send;
}
