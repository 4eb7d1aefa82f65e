//! The pure core, on any events: it has the same result as the naive fold.

mod common;

use common::{Happened, Notes, garbled};
use leftfold::NewEvent;
use leftfold::testing::spec;
use proptest::prelude::*;

fn any_event() -> impl Strategy<Value = NewEvent> {
    let to = prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 0..3);
    (0..12_u8, to).prop_map(|(what, to)| {
        let ids = to.iter().map(ToString::to_string).collect();
        let happened = match what {
            0 => Happened::Cleared { to: ids },
            1 => Happened::Poison { to: ids },
            2 => return garbled(&to),
            3 => return NewEvent::new("unheard-of", leftfold::Json::stored("{}")).expect("a valid type"),
            _ => Happened::Noted { to: ids },
        };
        NewEvent::encode(&happened).expect("it encodes")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn folds_like_the_naive_one(events in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), any_event()), 1..25)) {
        for notes in [Notes::by_stream(), Notes::by_content()] {
            let mut given = spec(notes);
            for (stream, event) in &events {
                given = given.given_events(stream, [event.clone()]);
            }
            given.holds_under_chaos();
        }
    }
}
