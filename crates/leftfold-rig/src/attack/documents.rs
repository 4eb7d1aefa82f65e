//! Documents that kill processes, are large, or can't be read.

use leftfold::react::State;
use tokio::time::Instant;

use super::attacker::Attacker;
use crate::crew::{PATIENCE, pause};
use crate::failure::Failure;
use crate::member::Member;
use crate::react::{GARBLED, ITEM, ItemKind, LARGE, POISON, is_unreadable};
use crate::role::Role;
use crate::store::{TestedStore, patiently};

/// The number of healthy documents written together with the deadly one.
const NEIGHBOURS: u64 = 60;
/// The rig kills another runner whenever the deadly document has killed this many processes.
const KILL_BESIDE_EVERY: usize = 3;

impl<S: TestedStore> Attacker<'_, S> {
    /// Writes a document that kills the process that handles it, among healthy ones. Its task must
    /// be given up, and not too late. Meanwhile the rig kills other runners as well.
    pub(super) async fn poison(&mut self) -> Result<(), Failure> {
        let neighbour =
            |number| (format!("neighbour-{number}"), self.item_writer.new_of(ItemKind::Neighbour));
        let mut items: Vec<_> = (0..NEIGHBOURS).map(neighbour).collect();
        items.push((POISON.to_owned(), self.item_writer.new_of(ItemKind::Deadly)));
        self.item_writer.insert_all(self.store, items).await?;
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let fallen = |(at, member): (usize, &Member)| member.dies_with.map(|beside| (at, beside));
            while let Some((at, beside)) = self.crew.members.iter().enumerate().find_map(fallen) {
                self.crew.replace(at, true).await?;
                self.tally.falls.push(beside);
                if self.tally.falls.len() % KILL_BESIDE_EVERY == 1 {
                    self.kill_beside().await?;
                }
            }
            if self.task(POISON, POISON).await?.is_some_and(|task| task.state == State::Failed) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Violated(vec![format!(
                    "I8: the task of the deadly document was not given up in {PATIENCE:?}"
                )]));
            }
            pause().await;
        }
    }

    /// Kills a runner, unless it already dies by itself.
    async fn kill_beside(&mut self) -> Result<(), Failure> {
        let at = self.victim(Role::Runner).await?;
        self.crew.tend().await?;
        if self.crew.members[at].dies_with.is_none() {
            self.crew.replace(at, false).await?;
            self.tally.reactors_killed += 1;
            self.tally.reactors_killed_at_any_moment += 1;
        }
        Ok(())
    }

    /// Writes a document with a large watched value. Later documents must still be handled.
    pub(super) async fn enlarge(&mut self) -> Result<(), Failure> {
        let item = self.item_writer.new_large(S::LARGE_BYTES);
        self.item_writer.put(self.store, LARGE, Some(item)).await?;
        self.tally.enlarged += 1;
        self.others_go_on().await
    }

    /// Writes a document that can't be read. Its task fails, and later documents must still be
    /// handled.
    pub(super) async fn garble(&mut self) -> Result<(), Failure> {
        patiently::<S, _, _>(|| self.store.put_unreadable(GARBLED)).await?;
        self.wait_for(GARBLED, ITEM, Instant::now(), is_unreadable).await?;
        self.tally.garbled += 1;
        self.others_go_on().await
    }

    /// Writes a document and waits until it is handled.
    async fn others_go_on(&mut self) -> Result<(), Failure> {
        let item = self.item_writer.new_item();
        let id = format!("after-{}", item.tag);
        self.item_writer.put(self.store, &id, Some(item)).await?;
        self.wait_for(&id, ITEM, Instant::now(), |task| task.state == State::Done).await?;
        Ok(())
    }
}
