//! Counters, in memory.

use std::collections::HashMap;

use super::Memory;
use crate::error::Result;
use crate::revision::{Counters, Draw, REMEMBERED_CLIENTS};

/// The counters by name.
pub(super) type Kept = HashMap<String, Count>;

#[derive(Debug, Default)]
pub(super) struct Count {
    last: u64,
    /// The last request of each client and its answer; the most recent clients are at the end.
    clients: Vec<(String, u64, u64)>,
}

impl Counters for Memory {
    async fn draw(&self, draw: Draw) -> Result<u64> {
        let mut state = self.state();
        let count = state.counters.entry(draw.counter).or_default();
        let known = count.clients.iter().position(|(client, ..)| *client == draw.client);
        if let Some((_, _, first)) =
            known.map(|at| &count.clients[at]).filter(|(_, request, _)| *request == draw.request)
        {
            return Ok(*first);
        }
        if let Some(at) = known {
            count.clients.remove(at);
        }
        let first = count.last + 1;
        count.last += draw.count;
        count.clients.push((draw.client, draw.request, first));
        if count.clients.len() > REMEMBERED_CLIENTS {
            count.clients.remove(0);
        }
        Ok(first)
    }
}
