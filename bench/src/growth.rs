//! Measures time per event and memory while the log grows.

use shopping_cart::workload::Order;

use crate::catch_up::in_a_process;
use crate::report::{Measurement, Result, float, median};
use crate::stores::fill;
use crate::subject::Subject;

const SIZES: [u64; 3] = [100_000, 1_000_000, 10_000_000];
const MAX_BYTES: f64 = 200e6;

pub(crate) async fn measure<S: Subject>(subject: &S) -> Result<Vec<Measurement>> {
    let mut micros = Vec::new();
    let mut peak = 0;
    for events in SIZES {
        let name = "growth";
        subject.remove(name).await?;
        fill(subject, name, events, Order::Interleaved { open: 5_000 }).await?;
        // Small logs give noisier results, so they get more rounds.
        let rounds = if events <= 1_000_000 { 5 } else { 1 };
        let mut took = Vec::new();
        for _ in 0..rounds {
            eprintln!("growth, {events} events …");
            let place = if rounds > 1 { subject.unfolded(name).await? } else { name.to_owned() };
            let cost = in_a_process(&subject.argument(&place))?;
            took.push(cost.seconds * 1e6 / float(events));
            peak = cost.peak_bytes;
        }
        micros.push(median(took));
        let place = subject.unfolded(name).await?;
        subject.remove(&place).await?;
        subject.remove(name).await?;
    }
    let (least, most) =
        (micros.iter().copied().fold(f64::MAX, f64::min), micros.iter().copied().fold(0.0, f64::max));
    let mut measurements: Vec<_> = SIZES
        .iter()
        .zip(&micros)
        .map(|(events, took)| {
            Measurement::less(
                format!("{events} events, µs per event (fastest of the sizes)"),
                *took,
                least,
                None,
            )
        })
        .collect();
    measurements.push(Measurement::less("µs per event, slowest size (fastest)", most, least, Some(0.8)));
    let bench = format!("peak memory at {} events, MB (200 MB)", SIZES[2]);
    measurements.push(Measurement::less(bench, float(peak) / 1e6, MAX_BYTES / 1e6, Some(1.0)));
    Ok(measurements)
}
