//! Measures writes of documents without events against plain, unguarded writes.

use std::fmt;
use std::time::Instant;

use leftfold::DocumentId;
use leftfold::content::{Contents, Operated, Operation, OperationId, Version, Versioned, WriteAnswer};
use leftfold::revision::Clock;
use serde::{Deserialize, Serialize};

use crate::report::{Measurement, Result, float, median};
use crate::subject::Subject;

/// The number of documents.
pub(crate) const DOCUMENTS: usize = 2_000;
/// The number of documents per bulk write.
pub(crate) const BULK: usize = 1_000;
const GOAL: f64 = 0.8;

/// A document of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Product {
    name: String,
    description: String,
    price: u64,
    pub(crate) stock: i64,
    tags: Vec<String>,
}

impl Product {
    pub(crate) fn new(number: usize, round: usize) -> Self {
        Self {
            name: format!("Product {number}"),
            description: "Good for long walks, easy to clean, and not too heavy to carry along".to_owned(),
            price: 4_900 + round as u64,
            stock: 1_000,
            tags: vec!["shoes".to_owned(), "outdoor".to_owned(), "new".to_owned()],
        }
    }
}

pub(crate) fn id(number: usize) -> String {
    format!("product-{number:07}")
}

/// A mode of writing documents.
#[derive(Clone, Copy)]
pub(crate) struct WriteMode {
    pub(crate) kind: WriteKind,
    /// The number of documents per write.
    pub(crate) at_once: usize,
    /// The number of times each document is written.
    pub(crate) rounds: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum WriteKind {
    /// Replaces the whole document.
    Content,
    /// Increments a number in the document.
    Operation,
}

const MODES: [WriteMode; 4] = [
    WriteMode { kind: WriteKind::Content, at_once: 1, rounds: 1 },
    WriteMode { kind: WriteKind::Content, at_once: BULK, rounds: 20 },
    WriteMode { kind: WriteKind::Operation, at_once: 1, rounds: 1 },
    WriteMode { kind: WriteKind::Operation, at_once: BULK, rounds: 20 },
];

impl WriteMode {
    /// Returns the documents that are written together, round by round.
    pub(crate) fn batches(self) -> impl Iterator<Item = (usize, Vec<usize>)> {
        let numbers: Vec<_> = (0..DOCUMENTS).collect();
        let chunks: Vec<_> = numbers.chunks(self.at_once).map(<[_]>::to_vec).collect();
        (1..=self.rounds).flat_map(move |round| chunks.clone().into_iter().map(move |chunk| (round, chunk)))
    }

    /// Returns the writes per second since `begun`.
    pub(crate) fn per_second(self, begun: Instant) -> f64 {
        float((DOCUMENTS * self.rounds) as u64) / begun.elapsed().as_secs_f64()
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            WriteKind::Content => "content updates",
            WriteKind::Operation => "operations",
        };
        match self.at_once {
            1 => write!(f, "{kind}, one by one"),
            many => write!(f, "{kind}, {many} at a time"),
        }
    }
}

pub(crate) async fn measure<S: Subject>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let place = "writes";
    let mut measurements = Vec::new();
    for mode in MODES {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("{mode}, round {round} of {rounds} …");
            subject.remove(place).await?;
            plain.push(subject.plain_writes(place, mode).await?);
            subject.remove(place).await?;
            let store = subject.open(place).await?;
            ours.push(guarded(store.clone(), mode).await?);
            subject.close(store).await;
        }
        let bench = format!("{mode}, per second (unguarded)");
        measurements.push(Measurement::more(bench, median(ours), median(plain), Some(GOAL)));
    }
    subject.remove(place).await?;
    Ok(measurements)
}

async fn guarded(store: impl Contents, mode: WriteMode) -> Result<f64> {
    let products = Versioned::<Product, _>::new(store, "products").await?;
    let mut versions = Vec::with_capacity(DOCUMENTS);
    for numbers in (0..DOCUMENTS).collect::<Vec<_>>().chunks(BULK) {
        let new: Vec<_> = numbers.iter().map(|number| (id(*number), Product::new(*number, 0))).collect();
        let writes = new.iter().map(|(id, product)| (id.as_str(), None, product));
        for answer in products.write_all(writes).await? {
            versions.push(applied(answer)?);
        }
    }
    let clock = Clock::new();
    let begun = Instant::now();
    for (round, numbers) in mode.batches() {
        match (mode.kind, &numbers[..]) {
            (WriteKind::Content, &[number]) => {
                let product = Product::new(number, round);
                versions[number] = applied(products.update(&id(number), versions[number], &product).await?)?;
            }
            (WriteKind::Operation, &[number]) => check(&products.operate(&id(number), sell(&clock)?).await?)?,
            (WriteKind::Content, many) => {
                let new: Vec<_> =
                    many.iter().map(|number| (id(*number), Product::new(*number, round))).collect();
                let from = many.iter().map(|number| Some(versions[*number]));
                let writes = new.iter().zip(from).map(|((id, product), from)| (id.as_str(), from, product));
                for (answer, number) in products.write_all(writes).await?.into_iter().zip(many) {
                    versions[*number] = applied(answer)?;
                }
            }
            (WriteKind::Operation, many) => {
                let operations = many.iter().map(|number| Ok((DocumentId::new(id(*number))?, sell(&clock)?)));
                let operations = operations.collect::<Result<_>>()?;
                products.operate_all(operations).await?.iter().try_for_each(check)?;
            }
        }
    }
    Ok(mode.per_second(begun))
}

fn sell(clock: &Clock) -> Result<Operation> {
    Ok(Operation::new(OperationId::try_from(clock.next())?).increment("stock", -1)?)
}

fn applied(answer: WriteAnswer<Product>) -> Result<Version> {
    match answer {
        WriteAnswer::Applied(version) => Ok(version),
        other => Err(format!("a write was not applied: {other:?}").into()),
    }
}

fn check(operated: &Operated) -> Result<()> {
    match operated {
        Operated::Applied => Ok(()),
        other => Err(format!("an operation was not applied: {other:?}").into()),
    }
}
