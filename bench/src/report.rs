//! Measurements and their output.

use std::io::{Write as _, stdout};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// A measurement and its reference.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    /// The name of the measurement, with its unit and, in brackets, its reference.
    pub(crate) bench: String,
    pub(crate) ours: f64,
    pub(crate) reference: f64,
    /// The factor by which ours is better than the reference.
    pub(crate) ratio: f64,
    /// The minimum ratio, if there is a goal.
    pub(crate) goal: Option<f64>,
    pub(crate) met: Option<bool>,
}

impl Measurement {
    /// Creates a measurement where more is better, such as events per second.
    pub(crate) fn more(bench: impl Into<String>, ours: f64, reference: f64, goal: Option<f64>) -> Self {
        Self::new(bench.into(), ours, reference, ours / reference, goal)
    }

    /// Creates a measurement where less is better, such as time or memory.
    pub(crate) fn less(bench: impl Into<String>, ours: f64, reference: f64, goal: Option<f64>) -> Self {
        Self::new(bench.into(), ours, reference, reference / ours, goal)
    }

    fn new(bench: String, ours: f64, reference: f64, ratio: f64, goal: Option<f64>) -> Self {
        Self { bench, ours, reference, ratio, goal, met: goal.map(|goal| ratio >= goal) }
    }
}

pub(crate) fn print(measurements: &[Measurement], json: bool) -> Result<()> {
    let text =
        if json { serde_json::to_string_pretty(measurements)? } else { table(measurements).to_string() };
    writeln!(stdout(), "{text}")?;
    Ok(())
}

fn table(measurements: &[Measurement]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["measured", "ours", "reference", "ratio", "goal", "met"]);
    for measurement in measurements {
        table.add_row([
            measurement.bench.clone(),
            number(measurement.ours),
            number(measurement.reference),
            format!("{:.2}", measurement.ratio),
            measurement.goal.map(|goal| format!("≥ {goal}")).unwrap_or_default(),
            measurement.met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
        ]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub(crate) fn number(value: f64) -> String {
    if value < 0.1 {
        return format!("{value:.4}");
    }
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns a percentile of sorted values.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Converts a count to a float for a division.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
