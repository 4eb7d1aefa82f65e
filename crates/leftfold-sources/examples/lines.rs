//! A custom source: the lines of a file, each a CloudEvent.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use leftfold::{Memory, Policy, Result, Sequencer};
use leftfold_sources::{Feed, Mapping, Message, Source};
use tokio::sync::watch;

struct Lines {
    texts: Vec<String>,
    to_bring: VecDeque<usize>,
    not_yet_safe: BTreeSet<usize>,
}

impl Source for Lines {
    type Receipt = usize;

    fn name(&self) -> &'static str {
        "lines"
    }

    async fn receive(&mut self, most: usize) -> Result<Vec<(Message, usize)>> {
        let most = most.min(self.to_bring.len());
        let numbers = self.to_bring.drain(..most);
        Ok(numbers.map(|number| (Message::new(self.texts[number].as_bytes()), number)).collect())
    }

    async fn acknowledge(&mut self, receipts: Vec<usize>) -> Result<()> {
        self.not_yet_safe.retain(|number| !receipts.contains(number));
        Ok(()) // a real one would now write down the first line that is not yet safe
    }

    async fn refuse(&mut self, receipts: Vec<usize>, after: Duration) -> Result<()> {
        tokio::time::sleep(after).await;
        self.to_bring.extend(receipts);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let event = |id, sequence| {
        format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/","type":"added","subject":"cart","sequence":{sequence}}}"#
        )
    };
    let texts = vec![event("b", 2), "no event".to_owned(), event("a", 1), event("b", 2)];
    let (to_bring, not_yet_safe) = ((0..texts.len()).collect(), (0..texts.len()).collect());
    let sequencer = Sequencer::new(Memory::default());
    let source = Lines { texts, to_bring, not_yet_safe };
    let feed = Feed::new(source, sequencer.clone(), Mapping::default(), Policy::Contiguous);
    let (handle, (_stop, stopped)) = (feed.handle(), watch::channel(false));
    feed.run(stopped).await?;

    assert_eq!((handle.counts().acknowledged, handle.counts().rejected), (4, 1));
    assert_eq!((sequencer.counts().appended, sequencer.counts().duplicates), (2, 1));
    Ok(())
}
