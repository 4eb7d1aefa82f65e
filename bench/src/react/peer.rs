//! The well-known reference: mongodash for Node, installed and run as a separate process.

use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use super::{LATENCIES, PER_SECOND};
use crate::report::Result;
use crate::subject::Subject as _;
use crate::subject::mongodb::Databases;

/// The number of documents. mongodash is slow, so a part of ours is enough.
const DOCUMENTS: u64 = 5_000;

/// The results of mongodash on the same server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer {
    pub(super) tasks_per_second: f64,
    /// The latencies in milliseconds.
    pub(super) latencies: Vec<f64>,
}

impl Peer {
    /// Installs mongodash into a temporary directory.
    pub(super) async fn install() -> Result<tempfile::TempDir> {
        let directory = tempfile::tempdir()?;
        for file in ["package.json", "run.mjs"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/mongodash").join(file);
            std::fs::copy(source, directory.path().join(file))?;
        }
        let mut install = Command::new("npm");
        install
            .args(["install", "--no-audit", "--no-fund", "--silent"])
            .current_dir(&directory)
            .stdout(Stdio::null());
        if !install.status().await.map_err(|error| missing(&error))?.success() {
            return Err("installing mongodash failed: npm needs its registry".into());
        }
        Ok(directory)
    }

    pub(super) async fn measure(databases: &Databases, installed: &Path) -> Result<Self> {
        let place = "react-peer";
        databases.remove(place).await?;
        let [documents, latencies, per_second] =
            [DOCUMENTS, LATENCIES, PER_SECOND].map(|number| number.to_string());
        let output = Command::new("node")
            .args(["run.mjs", &databases.argument(place), &documents, &latencies, &per_second])
            .current_dir(installed)
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(|error| missing(&error))?;
        databases.remove(place).await?;
        let mut peer: Self = serde_json::from_slice(&output.stdout)?;
        peer.latencies.sort_by(f64::total_cmp);
        Ok(peer)
    }
}

fn missing(error: &std::io::Error) -> String {
    format!("running mongodash: {error}; install node and npm")
}
