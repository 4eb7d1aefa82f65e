//! Commands that read documents, on any store.

use leftfold::Leftfold;
use serde_json::{Value, json};

use super::{shoes, shop};
use crate::common::Place;

pub(crate) async fn status_tells_how_far_each_projection_is_and_what_is_parked(place: &impl Place) {
    shop(place).await;
    place.run(&["status"]).exits(0).says("client_summary").says("the new type is unknown");
    let status = place.run(&["status", "--json"]).exits(0).json();
    let all = &status["projections"];
    assert_eq!(all[0]["projection"], "cart_details");
    assert_eq!((&all[0]["documents"], &all[0]["parked_documents"]), (&json!(2), &json!(1)));
    assert_eq!((&all[1]["lag"], &all[1]["position"]), (&json!(0), &json!({"0": 5})));
    assert_eq!(all[0]["rebuild_needed"], json!(null), "only the code could tell");
    let known = place.run_with_code(&["status", "--json"]).exits(0).json();
    assert_eq!(known["projections"][0]["rebuild_needed"], true, "other code has built the documents");
    for (mut stored, known) in
        all.as_array().unwrap().clone().into_iter().zip(known["projections"].as_array().unwrap())
    {
        stored["rebuild_needed"] = true.into();
        assert_eq!(&stored, known);
    }
    place.run(&["status", "--check"]).exits(1);
    place.run_with_code(&["parked", "retry", "--all"]).exits(0);
    place.run(&["status", "--check"]).exits(0);
}

pub(crate) async fn get_reads_a_document_and_can_wait_for_an_event(place: &impl Place) {
    let token = shop(place).await;
    place.run(&["get", "cart_details", "cart-2"]).exits(0).says("\"total\": 4900");
    let token_text = token.to_string();
    let wait = ["get", "cart_details", "cart-2", "--at-least", &token_text, "--json"];
    assert_eq!(place.run(&wait).exits(0).json()["clientId"], "bob");

    let absent = place.run(&["get", "cart_details", "cart-3", "--json"]).exits(1);
    assert!(absent.json()["error"].as_str().unwrap().contains("no such document"), "{absent:#?}");

    // Parked: the command fails at once, with the reason.
    let parked = place.run(&["get", "cart_details", "cart-1", "--at-least", "0:3:3:cart-1"]).exits(1);
    parked.says("the new type is unknown").says("parked");

    // Lagging: no worker runs.
    let app = Leftfold::on(place.open().await).open().await.unwrap();
    let token = app.append("cart-2", [shoes(1)]).await.unwrap().to_string();
    let wait = ["get", "cart_details", "cart-2", "--at-least", &token, "--timeout", "0.1"];
    place.run(&wait).exits(1).says("has not folded position 6").says("1 events behind");

    // Unknown: no such event.
    place
        .run(&["get", "cart_details", "cart-2", "--at-least", "0:99:9:cart-2"])
        .exits(2)
        .says("names no event");
    place.run(&["get", "cart_details", "cart-2", "--at-least", "soon"]).exits(2).says("partition:position");
}

pub(crate) async fn explain_tells_what_each_event_changed(place: &impl Place) {
    shop(place).await;
    let answer = place.run_with_code(&["explain", "cart_details", "cart-2"]).exits(0);
    let lines: Vec<_> = answer.stdout.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("4  cart-2@1  shopping-cart-opened  "), "{answer:#?}");
    assert!(lines.contains(&"clientId: nothing → \"bob\""), "{answer:#?}");
    assert!(lines.contains(&"total: 0 → 4900"), "{answer:#?}");
    let steps = place.run_with_code(&["explain", "open_carts", "ann", "--json"]).exits(0).json();
    let steps = steps.as_array().unwrap();
    let kinds: Vec<_> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["shopping-cart-opened", "shopping-cart-confirmed"]);
    assert_eq!((&steps[1]["size"], &steps[1]["effect"]["changed"][0]["after"]), (&Value::Null, &Value::Null));
    let gone = place.run_with_code(&["explain", "open_carts", "ann"]).exits(0);
    gone.says("carts: [\"cart-1\"] → nothing").says("the document is deleted");
    assert_eq!(
        place.run_with_code(&["explain", "cart_details", "cart-9", "--json"]).exits(1).json(),
        json!([])
    );
    place.run_with_code(&["explain", "cart_details", "cart-9"]).exits(1).says("never routed");

    let past = place.run_with_code(&["explain", "cart_details", "cart-2", "--at", "1"]).exits(0);
    past.says("as of revision 1:").says("\"total\": 0");
    let steps =
        place.run_with_code(&["explain", "open_carts", "ann", "--at", "cart-1@1", "--json"]).exits(0).json();
    let changed = &steps[0]["effect"]["changed"][0];
    assert_eq!((steps.as_array().unwrap().len(), &changed["after"]["carts"]), (1, &json!(["cart-1"])));
    place.run_with_code(&["get", "open_carts", "ann", "--at", "cart-1@1"]).exits(0).says("cart-1");
    place.run(&["get", "open_carts", "ann"]).exits(1);
    place.run_with_code(&["get", "open_carts", "ann", "--at", "1"]).exits(2).says("stream@1");
    place
        .run_with_code(&["get", "open_carts", "ann", "--at", "2020-01-01T00:00:00Z"])
        .exits(1)
        .says("no such document as of 2020-01-01");
    place
        .run_with_code(&["explain", "open_carts", "ann", "--at", "yesterday"])
        .exits(2)
        .says("stream@revision");
}

/// A store has no code. The error of a command that needs it says what to do.
pub(crate) async fn commands_that_need_the_code_say_so(place: &impl Place) {
    shop(place).await;
    let help = place.run(&["--help"]).exits(0).stdout;
    let (_, needing) = help.split_once("need the projections' code").unwrap();
    let needing = needing.lines().nth(1).unwrap();
    let document = ["cart_details", "cart-1"];
    let commands: [(&str, &[&str]); 9] = [
        ("explain", &document),
        ("explain", &["cart_details", "cart-9", "--why-not"]),
        ("get --at", &["2", "cart_details", "cart-1"]),
        ("parked retry", &["--all"]),
        ("parked retry", &["cart_details", "cart-1", "--dry-run"]),
        ("rebuild", &["cart_details"]),
        ("refold", &document),
        ("undo", &["cart_details"]),
        ("verify", &[]),
    ];
    for (command, arguments) in commands {
        assert!(needing.contains(command), "{command} is not in {needing}");
        let words: Vec<_> = command.split(' ').chain(arguments.iter().copied()).collect();
        let answer = place.run(&words).exits(2);
        answer
            .says(&format!("`leftfold {command}` needs the projections' code"))
            .says("run it without --store in the directory of a leftfold.toml, or name one with --config");
    }
    let error = place.run(&["verify", "--json"]).exits(2).json();
    assert!(error["error"].as_str().unwrap().contains("needs the projections' code"), "{error}");
    place.run(&["parked", "list"]).exits(0).says("cart-1");
}

pub(crate) async fn explain_tells_why_a_document_is_not_there(place: &impl Place) {
    shop(place).await;
    let why = |collection: &str, id: &str| place.run_with_code(&["explain", collection, id, "--why-not"]);
    why("cart_details", "cart-2").exits(1).says("it is there");
    why("cart_details", "cart-9").exits(0).says("never routed");
    why("open_carts", "ann").exits(0).says("deleted: by shopping-cart-confirmed");
    let why = place.run_with_code(&["explain", "open_carts", "ann", "--why-not", "--json"]).exits(0).json();
    assert_eq!((&why[0]["why"], &why[0]["by"]["stream"]), (&json!("deleted"), &json!("cart-1")));
}
