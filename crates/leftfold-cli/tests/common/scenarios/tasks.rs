//! Commands for tasks of reactions, on any store.

use leftfold::Leftfold;
use leftfold::react::{Reaction, ReactionStore as _, Reactor, Retry};
use serde_json::json;
use shopping_cart::CartDetails;
use shopping_cart::CartEvent::ShoppingCartOpened;

use super::audited;
use crate::common::Place;

pub(crate) async fn tasks_are_listed_shown_retried_and_paused(place: &impl Place) {
    let app = Leftfold::on(place.open().await).projection(CartDetails).start().await.unwrap();
    place.run(&["tasks", "count"]).exits(0).says("no reactions");
    place.run(&["tasks", "list"]).exits(0).says("no such tasks");
    let client_id = || "ann".to_owned();
    for cart in ["cart-1", "cart-2"] {
        app.append(cart, [ShoppingCartOpened { client_id: client_id() }]).await.unwrap();
    }
    app.caught_up().await.unwrap();
    let mail = Reaction::on(CartDetails, "mail").retry(Retry::never()).run(async |ctx| {
        ctx.document().await?;
        if ctx.id().as_str() == "cart-1" { Err("the server is down".into()) } else { Ok(()) }
    });
    let reacting = Reactor::on(app.store().clone()).reaction(mail).start().await.unwrap();
    reacting.idle().await.unwrap();
    let counted = place.run(&["tasks", "count", "--json"]).exits(0).json();
    assert_eq!(counted[0]["states"], json!({ "done": 1, "failed": 1 }), "{counted:#}");
    place.run(&["tasks", "count"]).exits(0).says("mail");
    let failed = place.run(&["tasks", "list", "--state", "failed", "--json"]).exits(0).json();
    assert_eq!(
        (failed.as_array().unwrap().len(), &failed[0]["document"]),
        (1, &json!("cart-1")),
        "{failed:#}"
    );
    let shown = place.run(&["tasks", "show", "mail", "cart-1"]).exits(0);
    shown.says("mail for cart-1: failed").says("the server is down");
    place.run(&["tasks", "show", "mail", "nobody"]).exits(1).says("has no task");
    place.run(&["tasks", "retry"]).exits(2).says("--all");
    place.run(&["tasks", "retry", "--filter", "{\"$odd\":1}"]).exits(2).says("$odd");
    place.run(&["tasks", "pause", "nothing"]).exits(2).says("the name of a registered reaction");
    place.run(&["tasks", "pause", "mail"]).exits(0).says("paused");
    let retried = place.run(&["tasks", "retry", "--error", "SERVER", "--json"]).exits(0).json();
    assert_eq!(retried["retried"], 1);
    reacting.idle().await.unwrap();
    let waiting = place.run(&["tasks", "list", "--state", "pending", "--json"]).exits(0).json();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "it is paused: {waiting:#}");
    place.run(&["tasks", "resume", "mail"]).exits(0).says("resumed");
    reacting.idle().await.unwrap();
    let again = place.run(&["tasks", "show", "mail", "cart-1", "--json"]).exits(0).json();
    let claims = again["epoch"].as_u64().unwrap() - failed[0]["epoch"].as_u64().unwrap();
    assert_eq!((&again["state"], claims), (&json!("failed"), 1), "{again:#}");
    assert_eq!(app.store().registered().await.unwrap().len(), 1);
    reacting.stop(std::time::Duration::from_secs(5)).await;
    app.stop().await;
    audited(place, &["resume-reaction", "retry-tasks", "pause-reaction"]);
}
