//! Messages that are not events.

use super::fixtures::time;
use crate::error::Kind;
use crate::sequence::{MAX_REJECTED, Rejected, Sequences};
use crate::store::Store;

/// Messages that are not events are kept once, with their bytes, up to a bound.
pub async fn rejected_messages_are_kept_until_they_are_forgotten<S: Store + Sequences>(store: S) {
    let rejected = |content: &[u8]| Rejected {
        source: "orders".to_owned(),
        reason: "it is no JSON".to_owned(),
        since: time(3),
        attributes: [("key".to_owned(), "k\u{e4}\n".to_owned())].into(),
        content: content.to_vec(),
    };
    let list = [rejected(b"\0\xff{"), rejected(b""), rejected(b"x")];
    store.reject(list.to_vec()).await.unwrap();
    let again = Rejected { since: time(8), ..list[0].clone() };
    store.reject(vec![again]).await.unwrap();
    let kept = store.rejected(None, 10).await.unwrap();
    assert_eq!(kept.len(), 3);
    assert_eq!(store.count_rejected().await.unwrap(), 3);
    assert!(list.iter().all(|rejected| kept.contains(rejected)), "{kept:?}");
    assert_eq!(store.rejected(Some(kept[0].id()), 1).await.unwrap()[..], kept[1..2]);
    assert!(store.forget(&kept[1].id()).await.unwrap());
    assert!(!store.forget(&kept[1].id()).await.unwrap());
    assert_eq!(store.rejected(None, 10).await.unwrap().len(), 2);
    for first in (0..MAX_REJECTED - 2).step_by(2_000) {
        let some =
            (first..MAX_REJECTED - 2).take(2_000).map(|number| rejected(number.to_string().as_bytes()));
        store.reject(some.collect()).await.unwrap();
    }
    let error = store.reject(vec![rejected(b"one more")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    store.reject(vec![list[0].clone()]).await.unwrap();
    assert!(store.forget(&list[0].id()).await.unwrap());
    store.reject(vec![rejected(b"one more")]).await.unwrap();
}
