//! Marks, and manual folds.

use crate::scripted::{Fault, Scripted};
use leftfold::documents::guarded::GuardedAnswer;
use leftfold::{Guarded, Lane, Mark, Memory, Partition, Rule};

#[test]
fn a_mark_covers_another_only_if_none_of_its_lanes_is_behind() {
    let mark = |lanes: &[(u16, u64)]| -> Mark {
        lanes.iter().map(|(partition, number)| (Lane::from(Partition(*partition)), *number)).collect()
    };
    let head = mark(&[(0, 3), (1, 2)]);
    for behind in [&[][..], &[(0, 3)], &[(1, 9)], &[(0, 3), (1, 1)], &[(0, 2), (1, 2)]] {
        assert!(!mark(behind).covers(&head), "{behind:?}");
        assert!(head.covers(&Mark::default()) && mark(behind).covers(&mark(behind)));
    }
    assert!(mark(&[(0, 3), (1, 2), (2, 1)]).covers(&head));
}

#[tokio::test]
async fn folding_by_hand_counts_what_another_wrote_in_between() {
    let store = Memory::default();
    let lists = Guarded::<Vec<u64>, _>::new(store.clone(), "lists").await.unwrap();
    let other = lists.clone();
    let push = |list: Option<Vec<u64>>, number| Ok(Some([list.unwrap_or_default(), vec![number]].concat()));
    let first = std::sync::atomic::AtomicBool::new(true);
    let lane = Lane::named("a");
    let answer = lists.fold("ann", &lane, 1, Rule::Contiguous, |list| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            // Between reading the document and writing it, another writer writes it.
            let theirs = async {
                other
                    .fold("ann", &Lane::named("b"), 1, Rule::Contiguous, |list| push(list, 20))
                    .await
                    .unwrap()
            };
            let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(theirs);
            let theirs = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(theirs, GuardedAnswer::Applied(Some(vec![20])));
        }
        push(list, 10)
    });
    assert_eq!(answer.await.unwrap(), GuardedAnswer::Applied(Some(vec![20, 10])));
    assert_eq!(lists.get("ann").await.unwrap(), Some(vec![20, 10]));
}

#[tokio::test(start_paused = true)]
async fn folding_by_hand_says_applied_once_it_is_and_not_before() {
    for fault in [Fault::LostBefore, Fault::LostAfter] {
        let store = Scripted::default();
        let totals = Guarded::<u64, _>::new(store.clone(), "totals").await.unwrap();
        store.fault([fault]);
        let add = |total: Option<u64>| Ok(Some(total.unwrap_or(0) + 20));
        let answer = totals.fold("ann", &Lane::named("a"), 1, Rule::Contiguous, add).await.unwrap();
        assert_eq!(answer, GuardedAnswer::Applied(Some(20)), "{fault:?}");
        assert_eq!(totals.get("ann").await.unwrap(), Some(20), "{fault:?}");
    }
}
