//! A reaction, and the ways to begin one.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::definition::{Definition, Wanted};
use super::draft::Draft;
use super::every::Every;
use crate::documents::Collection;
use crate::error::Invalid;
use crate::event::{Event, EventKind};
use crate::fold::Projection;
use crate::react::store::{DocumentSource, ExternalCollection};

/// A reaction. [`Reaction::on`], [`Reaction::on_plain`], [`Reaction::on_event`] and
/// [`Reaction::every`] begin one; [`Draft::run`] or [`Draft::for_each`] completes it.
///
/// ```
/// # use leftfold::react::{Reaction, Retry};
/// # use serde::Deserialize;
/// # use std::time::Duration;
/// #[derive(Deserialize)]
/// struct Order { status: String, email: String, confirmed_at: Option<String> }
///
/// async fn send_mail(to: &str, once: &str) -> Result<(), std::io::Error> { Ok(()) }
///
/// let mail = Reaction::on_plain("orders", "confirmation-mail")
///     .when(|order: &Order| order.status == "confirmed")
///     .watch(|order| order.confirmed_at.clone())
///     .retry(Retry::exponential(Duration::from_secs(1), Duration::from_hours(1)).attempts(10))
///     .run(async |ctx| {
///         let order = ctx.document().await?;
///         send_mail(&order.email, &ctx.idempotency_key()).await?;
///         Ok(())
///     });
/// ```
#[derive(Clone)]
pub struct Reaction(pub(crate) Result<Arc<Definition>, Invalid>);

impl Reaction {
    /// Begins a reaction to documents of a projection. Tasks are stored under `name`: do not change
    /// it.
    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    pub fn on<P: Projection>(projection: P, name: &str) -> Draft<P::Document> {
        Draft::new(Collection::new(projection.name()).map(DocumentSource::Projection).map(Some), name)
    }

    /// Begins a reaction to events of these types. It handles each event once, and the events of a
    /// stream in order. A failing event blocks its own stream only. Folding again or rebuilding
    /// documents does not repeat it.
    ///
    /// ```
    /// # use leftfold::react::Reaction;
    /// let ship = Reaction::on_event(["order-paid"], "shipping").for_each(async |ctx| {
    ///     let event = ctx.event()?;
    ///     println!("ship {} because of {}", event.stream, event.id);
    ///     Ok(())
    /// });
    /// ```
    pub fn on_event(types: impl IntoIterator<Item = impl AsRef<str>>, name: &str) -> Draft<Event> {
        let kinds = types.into_iter().map(EventKind::new).collect::<Result<Vec<_>, _>>();
        let wanted = kinds.and_then(|kinds| {
            if kinds.is_empty() {
                Err(Invalid::new("event types", "", "at least one event type"))
            } else {
                Ok(Wanted { kinds, from_start: false })
            }
        });
        Draft { events: Some(wanted), ..Draft::new(Ok(None), name) }
    }

    /// Begins a recurring reaction. Of all processes that define it, one runs it at a time. It is a
    /// task like any other, with retries and history, and
    /// [`retry`](crate::react::ReactorHandle::retry) runs it now.
    ///
    /// ```
    /// # use leftfold::react::{Every, Reaction};
    /// let weekly = Every::cron("0 6 * * 1 UTC")?;
    /// let report = Reaction::every(weekly, "weekly-report").run(async |ctx| {
    ///     println!("number {}", ctx.epoch());
    ///     Ok(())
    /// });
    /// # Ok::<(), leftfold::Invalid>(())
    /// ```
    pub fn every(every: Every, name: &str) -> Draft<()> {
        Draft::every(every, name)
    }

    /// Checks that the definition is valid. [`Reactor::register`](crate::react::Reactor::register)
    /// rejects an invalid reaction.
    pub fn check(&self) -> Result<(), Invalid> {
        self.0.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Begins a reaction to documents of a collection that any program writes to.
    pub fn on_plain<D: DeserializeOwned>(collection: &str, name: &str) -> Draft<D> {
        Draft::new(ExternalCollection::new(collection).map(DocumentSource::External).map(Some), name)
    }
}
