//! A daemon that is killed repeatedly.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Daemon, change, initialized};

/// Several clients post the events of their carts, twice and out of order, while the daemon is
/// killed repeatedly. Then each document is the fold of its events.
pub(crate) fn every_document_is_right_however_often_it_is_killed(store: &str) {
    const CARTS: u64 = 12;
    const EVENTS: u64 = 20;
    const KILLS: usize = 6;
    let directory = initialized();
    change(directory.path(), "sqlite:leftfold.db", store);
    let file = directory.path().to_owned();
    let event = |cart: u64, revision: u64| {
        let (kind, data) = match revision {
            1 => ("cart-opened", json!({ "client": format!("client-{cart}") })),
            _ => ("item-added", json!({ "product": "shoes", "quantity": cart + revision })),
        };
        json!({
            "specversion": "1.0", "id": format!("{cart}-{revision}"), "source": "test", "subject": format!("cart-{cart}"),
            "type": kind, "data": data, "sequence": revision.to_string(), "time": "2026-01-01T10:00:00Z",
        })
    };
    let mut expected = BTreeMap::new();
    for cart in 0..CARTS {
        let items: u64 = (2..=EVENTS).map(|revision| cart + revision).sum();
        let document =
            json!({ "client": format!("client-{cart}"), "items": items, "opened": "2026-01-01T10:00:00Z" });
        expected.insert(format!("cart-{cart}"), document);
    }
    let batch = [("content-type", "application/cloudevents-batch+json")];
    let mut left: Vec<Vec<Value>> = (0..CARTS)
        .flat_map(|cart| {
            // Each pair of events in the wrong order, and each pair twice.
            let pairs = (1..=EVENTS)
                .step_by(2)
                .map(move |revision| vec![event(cart, revision + 1), event(cart, revision)]);
            pairs.flat_map(|pair| [pair.clone(), pair])
        })
        .collect();
    for kill in 0..=KILLS {
        let mut daemon = Daemon::start(&file);
        let many = left.len() / (KILLS + 1 - kill);
        let mut posted = left.split_off(left.len() - many);
        std::thread::scope(|scope| {
            let clients: Vec<_> = posted
                .chunks_mut(many.div_ceil(3).max(1))
                .map(|chunk| {
                    let daemon = &daemon;
                    scope.spawn(move || {
                        let sent = |events: &Vec<Value>| {
                            let body = Value::from(events.clone()).to_string();
                            daemon
                                .send("POST", "/events", &batch, &body)
                                .is_some_and(|(status, _)| status == 200)
                        };
                        chunk.iter().filter(|events| !sent(events)).cloned().collect::<Vec<_>>()
                    })
                })
                .collect();
            // The last daemon stays.
            if kill < KILLS {
                daemon.signal("-KILL");
            }
            // Unacknowledged events are posted again.
            for client in clients {
                left.extend(client.join().unwrap());
            }
        });
        if kill == KILLS {
            for events in std::mem::take(&mut left) {
                let body = Value::from(events).to_string();
                assert_eq!(daemon.send("POST", "/events", &batch, &body).unwrap().0, 200);
            }
            let events = daemon.get("/log?limit=1000");
            let events = events["events"].as_array().unwrap();
            assert_eq!(events.len() as u64, CARTS * EVENTS);
            for (id, document) in &expected {
                let last = events.iter().rfind(|event| event["stream"] == id.as_str()).unwrap();
                let token = last["bookmark"].as_str().unwrap();
                assert_eq!(
                    &daemon.get(&format!("/collections/carts/documents/{id}?at_least={token}&wait=60s")),
                    document
                );
            }
        }
        let _ = daemon.process.kill();
        let _ = daemon.process.wait();
    }
}
