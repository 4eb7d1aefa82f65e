//! The latest known commits.

use std::collections::HashMap;

use leftfold::{Collection, Mark};

use crate::log;

/// The known commits. Other processes may be further.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last position of each partition. Positions only grow.
    pub(crate) heads: Vec<u64>,
    /// The mark of each checkpoint, and the number of observed changes.
    pub(crate) marks: HashMap<Collection, (Mark, u64)>,
    /// The last entry of the journal of changes.
    pub(crate) journal: i64,
    /// SQLite's schema version: it changes with tables or triggers.
    pub(crate) schema: i64,
    /// The number of wake-ups of runners.
    pub(crate) wakes: u64,
    /// The number of times that the writer has published.
    pub(super) published: u64,
}

/// Possible news, apart from heads.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) marks: Vec<(Collection, Mark)>,
    pub(crate) journal: Option<i64>,
    pub(crate) schema: Option<i64>,
    pub(crate) wakes: Option<u64>,
}

impl Known {
    /// Returns whether some partition's head is beyond the mark.
    pub(crate) fn is_beyond(&self, mark: &Mark) -> bool {
        log::are_beyond(&self.heads, mark)
    }

    /// Takes over newer values. Returns whether there are any.
    pub(super) fn see(&mut self, heads: impl Iterator<Item = u64>, news: News) -> bool {
        let News { marks, journal, schema, wakes } = news;
        let mut is_news = replace(&mut self.journal, journal);
        is_news |= replace(&mut self.schema, schema);
        is_news |= replace(&mut self.wakes, wakes);
        for (known, head) in self.heads.iter_mut().zip(heads) {
            is_news |= head > *known;
            *known = head.max(*known);
        }
        for (projection, mark) in marks {
            let (known, changes) = self.marks.entry(projection).or_default();
            if *known != mark {
                *known = mark;
                *changes += 1;
                is_news = true;
            }
        }
        is_news
    }
}

/// Replaces a value. Returns whether it changed.
fn replace<T: PartialEq>(known: &mut T, new: Option<T>) -> bool {
    let Some(new) = new.filter(|new| new != known) else { return false };
    *known = new;
    true
}
