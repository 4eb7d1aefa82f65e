//! Pages of lists: their bounds, and their cursors.

use serde::Deserialize;

use crate::problem::Problem;

/// The maximum number of items in a page.
pub(super) const MAX_ITEMS: usize = 1_000;
/// The maximum size of a page in bytes, unless its first item alone is larger.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// The query of a list that has pages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paged {
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// Returns the number of items in a page.
pub(super) fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(100),
        Some(limit) if (1..=MAX_ITEMS).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::invalid(format!("limit: expected 1 to {MAX_ITEMS}, not {limit}"))),
    }
}

/// Reads a page of a list that its store limits by number alone. It reads in small steps, so that
/// at most one step is in memory beyond the page. Returns the items, and whether there may be more.
pub(super) async fn fill<T, K, F: Future<Output = leftfold::Result<Vec<T>>>>(
    most: usize,
    mut after: Option<K>,
    read: impl Fn(Option<K>, usize) -> F,
    key: impl Fn(&T) -> K,
    size: impl Fn(&T) -> usize,
) -> Result<(Vec<T>, bool), Problem> {
    const STEP: usize = 8;
    let (mut page, mut left) = (Vec::new(), PAGE_BYTES);
    while page.len() < most {
        let wanted = STEP.min(most - page.len());
        let items = read(after, wanted).await?;
        let is_over = items.len() < wanted;
        for item in items {
            let size = size(&item);
            if size > left && !page.is_empty() {
                return Ok((page, true));
            }
            left = left.saturating_sub(size);
            page.push(item);
        }
        if is_over {
            return Ok((page, false));
        }
        after = page.last().map(&key);
    }
    Ok((page, true))
}
