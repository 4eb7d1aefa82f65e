use super::super::finding::{Severity, worst};
use super::*;
use crate::documents::{Generations, Tally};
use crate::event::StreamId;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn status() -> ProjectionStatus {
    ProjectionStatus {
        projection: "carts".to_owned(),
        version: "1".to_owned(),
        documents: 3,
        ..ProjectionStatus::default()
    }
}

/// Returns the only finding.
#[track_caller]
fn one(findings: Vec<Finding>) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.into_iter().next().unwrap()
}

#[test]
fn clocks_that_differ_are_told_by_how_much_and_which_way() {
    assert_eq!(clock(at(0), at(1)).severity, Severity::Fine);
    let behind = clock(at(0), at(10));
    assert_eq!(behind.severity, Severity::Warning);
    assert_eq!(behind.found, "this machine's clock is 10 seconds behind the store's");
    let ahead = clock(at(600), at(0));
    assert_eq!(ahead.severity, Severity::Wrong);
    assert!(ahead.found.contains("10 minutes ahead of"), "{ahead}");
}

#[test]
fn events_from_the_future_are_told() {
    assert_eq!(newest(None, at(0)).severity, Severity::Fine);
    assert_eq!(newest(Some(at(-90)), at(0)).found, "it is 90 seconds old");
    assert_eq!(newest(Some(at(5)), at(0)).severity, Severity::Fine);
    let future = newest(Some(at(7_200)), at(0));
    assert_eq!(
        (future.severity, future.found.as_str()),
        (Severity::Warning, "its time is 2 hours in the future")
    );
}

#[test]
fn a_projection_that_is_behind_is_wrong_only_if_nobody_works_on_it() {
    let fine = one(projection(&status(), Hands::Nobody, None));
    assert_eq!(
        (fine.severity, fine.found.as_str()),
        (Severity::Fine, "all events are folded, into 3 documents")
    );
    let behind = ProjectionStatus { lag: 7, ..status() };
    assert_eq!(one(projection(&behind, Hands::Somebody, None)).severity, Severity::Fine);
    let stalled = one(projection(&behind, Hands::Nobody, None));
    assert_eq!(
        (stalled.severity, stalled.found.as_str()),
        (Severity::Wrong, "7 events not folded, and no worker runs")
    );
    let stuck = one(projection(&behind, Hands::Stuck, None));
    assert_eq!((stuck.severity, stuck.found.starts_with("7 events behind")), (Severity::Warning, true));
    let far = ProjectionStatus { lag: BEHIND + 1, ..status() };
    assert_eq!(one(projection(&far, Hands::Somebody, None)).severity, Severity::Notice);
    let tally = Tally { last_error: Some("the disk is full".to_owned()), ..Tally::default() };
    let failing = one(projection(&ProjectionStatus { tally, ..status() }, Hands::Failing, None));
    assert!(failing.severity == Severity::Wrong && failing.found.contains("the disk is full"), "{failing}");
}

#[test]
fn what_is_parked_is_wrong_and_names_the_command_that_mends_it() {
    for (documents, streams, found) in [
        (1, 0, "1 document is parked"),
        (0, 2, "2 streams are parked"),
        (2, 1, "2 documents and 1 stream are parked"),
    ] {
        let parked = ProjectionStatus { parked_documents: documents, parked_streams: streams, ..status() };
        let said = one(projection(&parked, Hands::Somebody, None));
        assert_eq!(said.severity, Severity::Wrong);
        assert!(said.found.starts_with(found), "{said}");
        assert!(said.advice.unwrap().contains("`leftfold parked retry carts`"));
    }
}

#[test]
fn rebuilds_that_are_needed_stand_still_or_replaced_this_code_are_told() {
    let made = Generations::default().recorded("0").unwrap();
    let with = |generations: &Generations| ProjectionStatus {
        rebuild_needed: generations.differs("1"),
        generations: generations.clone(),
        ..status()
    };
    let needed = one(projection(&with(&made), Hands::Somebody, None));
    assert_eq!(needed.severity, Severity::Warning);
    assert!(needed.advice.unwrap().contains("leftfold rebuild carts"));

    let building = Generations::default().recorded("1").unwrap().building("1").unwrap();
    assert_eq!(worst(&projection(&with(&building), Hands::Somebody, Some(Hands::Somebody))), Severity::Fine);
    let left = one(projection(&with(&building), Hands::Somebody, Some(Hands::Nobody)));
    assert!(left.severity == Severity::Notice && left.advice.unwrap().contains("--cancel"));
    let switching = building.switching_to(1).unwrap();
    assert_eq!(worst(&projection(&with(&switching), Hands::Somebody, Some(Hands::Nobody))), Severity::Fine);
    let stuck = one(projection(&with(&switching), Hands::Nobody, Some(Hands::Nobody)));
    assert_eq!(stuck.severity, Severity::Wrong);

    let replaced = Generations::default().recorded("1").unwrap().building("2").unwrap();
    let replaced = replaced.switching_to(1).unwrap().switched().unwrap();
    let old = one(projection(&with(&replaced), Hands::Somebody, None));
    assert!(old.severity == Severity::Warning && old.advice.unwrap().contains("newer code"));
}

#[test]
fn what_waits_is_worse_the_longer_it_does() {
    let waiting = |seconds: i64| sequence::SequencerStatus {
        held: 2,
        waits_longest: Some(StreamId::new("cart-7").unwrap()),
        waits_since: Some(at(-seconds)),
        ..sequence::SequencerStatus::default()
    };
    assert_eq!(worst(&sequence(&sequence::SequencerStatus::default(), at(0))), Severity::Fine);
    for (seconds, severity) in
        [(1, Severity::Fine), (300, Severity::Warning), (3_600, Severity::Wrong), (-9, Severity::Fine)]
    {
        let said = held(&waiting(seconds), at(0));
        assert_eq!(said.severity, severity, "{said}");
        assert!(said.found.contains("2 events arrived early and are held, cart-7 for "), "{said}");
    }
    for status in [
        sequence::SequencerStatus { conflicts: 1, ..sequence::SequencerStatus::default() },
        sequence::SequencerStatus { rejected: 1, ..sequence::SequencerStatus::default() },
    ] {
        assert_eq!(worst(&sequence(&status, at(0))), Severity::Warning);
    }
}

#[test]
fn reactions_that_do_not_run_are_told_with_the_reason() {
    let registered = Registered {
        name: "mail".to_owned(),
        version: 1,
        on: None,
        definition: String::new(),
        code: 1,
        paused: false,
        paused_because: None,
        throttled: None,
        comparing: None,
    };
    let due = |seconds: i64| Depth { oldest_due: Some(at(-seconds)), ..Depth::default() };
    let mut states = std::collections::BTreeMap::from([(State::Pending, 2), (State::Done, 9)]);
    let fine = one(reaction(&registered, &Depth { states: states.clone(), oldest_due: None }, at(0)));
    assert_eq!((fine.severity, fine.found.as_str()), (Severity::Fine, "2 tasks to do"));
    for (seconds, severity) in [(5, Severity::Fine), (60, Severity::Warning), (600, Severity::Wrong)] {
        assert_eq!(one(reaction(&registered, &due(seconds), at(0))).severity, severity);
    }
    let because = Some("410 Gone".to_owned());
    let paused = Registered { paused: true, paused_because: because, ..registered.clone() };
    let said = one(reaction(&paused, &due(600), at(0)));
    assert_eq!((said.severity, said.found.as_str()), (Severity::Warning, "it is paused: 410 Gone"));
    let throttled = Registered { throttled: Some(at(30)), ..registered.clone() };
    assert_eq!(one(reaction(&throttled, &due(600), at(0))).severity, Severity::Notice);
    assert_eq!(one(reaction(&throttled, &due(600), at(60))).severity, Severity::Wrong, "no longer");
    states.insert(State::Failed, 1);
    let failed = one(reaction(&registered, &Depth { states, oldest_due: None }, at(0)));
    assert!(failed.severity == Severity::Wrong && failed.found.starts_with("1 task failed"), "{failed}");
}
