//! Tests of seeds that once failed, of the reproducibility of traces, and of a few crashes.

use leftfold_sim::{crashes, world};

#[test]
fn seeds_that_failed_once_hold() {
    let seeds =
        include_str!("../seeds.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for seed in seeds {
        let seed = seed.parse().expect("a line of seeds.txt is a number or begins with #");
        let run = world::run(seed, false).expect("a runtime");
        assert!(run.violations.is_empty(), "seed {seed}: {:?}", run.violations);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..200 {
        let [first, second] = [(); 2].map(|()| world::run(seed, true).expect("a runtime"));
        assert!(first.trace.len() > 10, "seed {seed}: {:?}", first.trace);
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
    }
}

#[test]
fn a_trace_that_nobody_wants_changes_nothing() {
    let (seen, unseen) = (world::run(7, true).expect("a runtime"), world::run(7, false).expect("a runtime"));
    assert_eq!((seen.met, seen.events, seen.sometimes), (unseen.met, unseen.events, unseen.sometimes));
    assert!(unseen.trace.is_empty());
}

#[test]
fn a_victim_dies_at_each_point_and_the_story_ends_well() {
    for story in crashes::stories() {
        let points = story.points().expect("a runtime");
        assert!(points > 50, "{story:?} has only {points} points");
        for point in (0..points).step_by(29) {
            let (_, run) = story.run(point, true).expect("a runtime");
            assert!(
                run.trace.iter().any(|line| line.contains("is dead")),
                "{story:?}: no victim died at {point}"
            );
            assert!(run.violations.is_empty(), "{story:?}, dead at {point}: {:?}", run.violations);
        }
    }
}
