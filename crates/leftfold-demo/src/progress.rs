//! The progress of the demo: bars on a terminal, a line per stage elsewhere. All on standard error.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use leftfold::{App, Store};
use leftfold_terminal::{Failure, thousands};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::event_plan::AppendProgress;
use crate::shop::COLLECTIONS;

const LOOK_EVERY: Duration = Duration::from_millis(150);

pub(crate) struct Progress {
    /// `false` if standard error is not a terminal: then nothing is drawn.
    visible: bool,
    all: MultiProgress,
    appended: ProgressBar,
    folded: Vec<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(events: u64, before: u64) -> Self {
        let visible = io::stderr().is_terminal();
        let all = MultiProgress::with_draw_target(if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        let style = ProgressStyle::with_template("{prefix:>15} {bar:30} {human_pos:>11}/{human_len}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = |name: &'static str, length| {
            all.add(ProgressBar::new(length).with_style(style.clone()).with_prefix(name))
        };
        let appended = bar("appended", events);
        let folded = COLLECTIONS.into_iter().map(|name| bar(name, before + events)).collect();
        Self { visible, all, appended, folded }
    }

    /// Prints the current stage.
    pub(crate) fn say(&self, stage: &str) {
        if self.visible {
            let _ = self.all.println(stage);
        } else {
            eprintln!("{stage}");
        }
    }

    /// Keeps the bars up to date. Returns only on failure.
    pub(crate) async fn follow<S: Store>(
        &self,
        app: &App<S>,
        appending: &AppendProgress,
        kills: &watch::Receiver<u64>,
    ) -> Failure {
        if !self.visible {
            std::future::pending::<()>().await;
        }
        loop {
            let all = match app.status().await {
                Ok(all) => all,
                Err(error) => return error.into(),
            };
            let kills = *kills.borrow();
            self.appended.set_position(appending.appended());
            self.appended.set_message(match kills {
                1 => "1 worker killed".to_owned(),
                kills => format!("{} workers killed", thousands(kills)),
            });
            for (bar, status) in self.folded.iter().zip(all) {
                bar.set_position(status.head.lanes().map(|(_, head)| head).sum::<u64>() - status.lag);
                let parked = thousands(status.parked_documents + status.parked_streams);
                bar.set_message(format!("{} behind, {parked} parked", thousands(status.lag)));
            }
            self.appended.tick();
            sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn end(&self) {
        let _ = self.all.clear();
    }
}
