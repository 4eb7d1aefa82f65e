//! Values and checks that these tests share.

use std::time::Duration;

use crate::common::{Happened, Mended as Switch, Notes};
use leftfold::fold::{Error, FoldOptions};
use leftfold::{Backoff, Event, Projection, Route};

pub(crate) fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(1),
        ..FoldOptions::default()
    }
}

/// Waits with a timeout: a hang is a failure.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), future).await.expect("it hangs")
}

/// Notes whose decoding is fixed separately.
#[derive(Clone)]
pub(crate) struct Decoding(pub(crate) Notes, pub(crate) Switch);
impl Projection for Decoding {
    type Event = Happened;
    type Document = crate::common::Seen;
    fn name(&self) -> &str {
        self.0.name()
    }
    fn route(&self) -> Route<Happened> {
        self.0.route()
    }
    fn upcast(&self, event: Event) -> Event {
        let lifted = Notes { mended: self.1.clone(), ..self.0.clone() };
        lifted.upcast(event)
    }
    fn fold(
        &self,
        seen: Option<crate::common::Seen>,
        event: &Event<Happened>,
    ) -> Result<Option<crate::common::Seen>, Error> {
        self.0.fold(seen, event)
    }
}
