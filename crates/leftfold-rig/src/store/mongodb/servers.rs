//! The replica set. Its primary is killed and comes back as a secondary.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use tokio::task::JoinHandle;

use super::copy::Copy;
use crate::failure::Failure;
use crate::store::{Environment, Snapshot as _, TestedStore as _};

const MEMBERS: usize = 3;

/// A replica set.
pub(crate) struct Servers {
    server: Arc<Server>,
    /// The killed member that is being restarted. There is at most one, so that a majority remains.
    returning: Mutex<Option<JoinHandle<Result<(), leftfold_testbed::Error>>>>,
}

impl Environment for Servers {
    async fn create() -> Result<Self, Failure> {
        let server = Server::replica_set(MEMBERS).await?;
        Ok(Self { server: Arc::new(server), returning: Mutex::new(None) })
    }

    /// Returns the URL of a database named like the directory.
    fn place(&self, directory: &Path) -> String {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        self.server.url().replacen("/?", &format!("/{name}?"), 1)
    }

    async fn primary(&self) -> Result<usize, Failure> {
        self.settle().await?;
        Ok(self.server.primary().await?)
    }

    async fn kill(&self, server: usize) -> Result<(), Failure> {
        self.settle().await?;
        self.server.kill(server).await?;
        let killed = Arc::clone(&self.server);
        let returning = tokio::spawn(async move { killed.start(server).await });
        *self.returning.lock().unwrap_or_else(PoisonError::into_inner) = Some(returning);
        Ok(())
    }

    async fn settle(&self) -> Result<(), Failure> {
        let returning = self.returning.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(returning) = returning else { return Ok(()) };
        let back = returning.await.map_err(|error| Failure::rig("restarting a server", error))?;
        Ok(back?)
    }

    /// Saves all data of the database as JSON, and the logs of the servers.
    async fn keep(&self, place: &str, directory: &Path) -> Result<(), Failure> {
        self.settle().await?;
        let store = Mongo::at(place).await?;
        Copy::of(store.database(), directory).await?.end(true).await?;
        for member in 0..MEMBERS {
            let log = format!("member-{member}.log");
            let copied = std::fs::copy(self.server.directory().join(&log), directory.join(&log));
            copied.map_err(|error| Failure::rig(format!("keeping {log}"), error))?;
        }
        Ok(())
    }

    async fn end(self) -> Result<(), Failure> {
        self.settle().await?;
        match Arc::into_inner(self.server) {
            Some(server) => Ok(server.shutdown().await?),
            None => Ok(()),
        }
    }
}
