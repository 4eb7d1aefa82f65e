//! The behaviour of the commands on any store.

pub(crate) mod deliveries;
pub(crate) mod documents;
pub(crate) mod repairs;
pub(crate) mod tasks;

use leftfold::{App, Bookmark, Event, Leftfold, Projection, Route, fold};
use shopping_cart::CartEvent::{ProductItemAdded, ShoppingCartConfirmed, ShoppingCartOpened};
use shopping_cart::{CartDetails, CartEvent, ClientSummary, DailyTotals, OpenCarts};

use super::Place;

/// Defines a test of each scenario, on a place that the expression creates.
macro_rules! scenarios {
    ($place:expr) => {
        scenarios! { $place =>
            documents::status_tells_how_far_each_projection_is_and_what_is_parked,
            documents::get_reads_a_document_and_can_wait_for_an_event,
            documents::explain_tells_what_each_event_changed,
            documents::explain_tells_why_a_document_is_not_there,
            documents::commands_that_need_the_code_say_so,
            repairs::parked_documents_are_listed_and_retried,
            repairs::what_still_fails_stays_parked,
            repairs::streams_are_parked_where_events_are_routed_by_content,
            repairs::refold_makes_a_document_what_its_events_make_of_it,
            repairs::what_operators_did_is_listed,
            deliveries::what_waits_is_listed_shown_and_skipped,
            deliveries::conflicts_are_listed_shown_and_resolved,
            deliveries::rejected_messages_are_listed_shown_and_forgotten,
            deliveries::rejected_messages_are_submitted_again,
            tasks::tasks_are_listed_shown_retried_and_paused,
        }
    };
    ($place:expr => $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                common::scenarios::$module::$name(&$place).await;
            }
        )*
    };
}

/// A projection that can't fold confirmations. `parked retry` later uses the fixed code.
struct Broken<P>(P);

impl<P: Projection> Projection for Broken<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn route(&self) -> Route<P::Event> {
        self.0.route()
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, fold::Error> {
        if event.kind.as_str() == "shopping-cart-confirmed" {
            return Err("the new type is unknown".into());
        }
        self.0.fold(document, event)
    }
}

fn opened(client: &str) -> CartEvent {
    ShoppingCartOpened { client_id: client.into() }
}

fn shoes(quantity: u32) -> CartEvent {
    ProductItemAdded { product_id: "shoes".into(), name: "Shoes".into(), quantity, unit_price: 4_900 }
}

fn confirmed(client: &str, total: u64) -> CartEvent {
    ShoppingCartConfirmed { client_id: client.into(), total }
}

/// Runs workers on the store until everything is folded or parked.
async fn fold<P: Place>(place: &P, append: impl AsyncFnOnce(&App<P::Store>)) {
    let app = Leftfold::on(place.open().await)
        .projection(Broken(CartDetails))
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts)
        .start()
        .await
        .unwrap();
    append(&app).await;
    app.caught_up().await.unwrap();
    app.stop().await;
}

/// Creates two carts: ann's is confirmed, and one read model could not fold it; bob's is still
/// open.
pub(crate) async fn shop(place: &impl Place) -> Bookmark {
    let mut token = None;
    fold(place, async |app| {
        app.append("cart-1", [opened("ann"), shoes(2), confirmed("ann", 9_800)]).await.unwrap();
        token = Some(app.append("cart-2", [opened("bob"), shoes(1)]).await.unwrap());
    })
    .await;
    token.unwrap()
}

/// Checks the entries of the audit trail, the newest first. Refused actions are not in it.
#[track_caller]
fn audited(place: &impl Place, actions: &[&str]) {
    let entries = place.run(&["audit", "--json"]).exits(0).json();
    let entries = entries.as_array().unwrap();
    let found: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(found, actions);
    for entry in entries {
        assert!(entry["actor"].as_str().unwrap().starts_with("cli:"), "{entry}");
    }
}
