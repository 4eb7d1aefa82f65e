//! Values and checks that these tests share.

use std::time::Duration;

use crate::common::Happened;
use leftfold::Backoff;
use leftfold::fold::FoldOptions;

pub(crate) fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(3),
        ..FoldOptions::default()
    }
}

/// Appends many events for a few documents, with deletes in between.
pub(crate) async fn fill<S: leftfold::Store>(app: &leftfold::App<S>, streams: usize, rounds: usize) {
    for round in 0..rounds {
        for stream in 0..streams {
            let (a, b) = (format!("d{}", stream % 5), format!("d{}", (stream + round) % 7));
            let to = vec![a, b];
            let event = match round % 9 {
                8 if stream == 0 => Happened::Cleared { to },
                _ => Happened::Noted { to },
            };
            app.append(&format!("s{stream}"), [event]).await.unwrap();
        }
    }
}
