//! The projections that a command works with: those of a configuration file, with their code, or
//! all collections that a store has, without.

use std::path::Path;

use leftfold::documents::Parked;
use leftfold::inspect::doctor::Examine;
use leftfold::inspect::{Inspector, ProjectionStatus};
use leftfold::{App, Collection, Get, Leftfold, Log as _, Store, Unit};
use leftfold_terminal::{AnyLocation, Exit, Failure, Location, SqliteFile};
use serde_json::Value;

use crate::args::StoreArgs;
use crate::daemon::{Config, FILE};

/// The default file of the store.
const STORE_FILE: &str = "leftfold.db";

pub(crate) enum Projections {
    /// The projections of a configuration file. They are compiled on demand, because commands such
    /// as `held` need none.
    Configured(Box<Config>),
    /// Every collection of the store.
    Stored,
}

/// Reads the configuration file that `--config` names, or the default one.
pub(crate) fn configuration(args: &StoreArgs) -> Result<Config, Failure> {
    Config::read(args.config.as_deref().unwrap_or(Path::new(FILE)))
}

impl Projections {
    /// Chooses the store and the projections. The code comes from `--config`, the store from
    /// `--store` or else from the file. Without both, the environment names the store, or the file
    /// in this directory does.
    pub(crate) fn choose(args: &StoreArgs) -> Result<(AnyLocation, Self), Failure> {
        if args.config.is_none() {
            if let Some(location) = args.location.clone().or_else(StoreArgs::from_environment) {
                return Ok((location, Self::Stored));
            }
            if !Path::new(FILE).is_file() {
                return Ok((AnyLocation::File(SqliteFile(STORE_FILE.into())), Self::Stored));
            }
        }
        let config = configuration(args)?;
        let location = match &args.location {
            Some(location) => location.clone(),
            None => config.location()?,
        };
        Ok((location, Self::Configured(Box::new(config))))
    }

    /// Returns the configuration. Fails if there is none, for a command that needs the projections'
    /// code.
    pub(crate) fn config(&self, command: &str) -> Result<&Config, Failure> {
        match self {
            Self::Configured(config) => Ok(config),
            Self::Stored => Err(needs_code(command)),
        }
    }

    /// Does the same by value.
    pub(crate) fn into_config(self, command: &str) -> Result<Config, Failure> {
        match self {
            Self::Configured(config) => Ok(*config),
            Self::Stored => Err(needs_code(command)),
        }
    }

    /// Opens the store, which must exist, for a command that needs the projections' code. No worker
    /// runs.
    pub(crate) async fn open_with_code<L: Location>(
        &self,
        location: &L,
        command: &str,
    ) -> Result<App<L::Store>, Failure> {
        self.config(command)?.open(location.open_existing().await?).await
    }

    /// Opens the store, which must exist.
    pub(crate) async fn open<L: Location>(&self, location: &L) -> Result<Documents<L::Store>, Failure> {
        let store = location.open_existing().await?;
        match self {
            Self::Configured(config) => Ok(Documents::OfApp(config.open(store).await?)),
            Self::Stored => {
                // A store without a log has no documents either, and its error says why.
                store.heads().await?;
                Ok(Documents::OfStore(Inspector::on(store)))
            }
        }
    }
}

fn needs_code(command: &str) -> Failure {
    let message = format!(
        "`leftfold {command}` needs the projections' code, and a store has only their documents; \
         run it without --store in the directory of a {FILE}, or name one with --config"
    );
    Failure::new(Exit::Usage, message)
}

impl Config {
    async fn open<S: Store>(&self, store: S) -> Result<App<S>, Failure> {
        // If the log can't be opened, create nothing else.
        store.heads().await?;
        let app = self.scripts()?.into_iter().fold(Leftfold::on(store), Leftfold::projection);
        Ok(app.open().await?)
    }
}

/// The documents of an application, or of all collections of a store.
pub(crate) enum Documents<S> {
    OfApp(App<S>),
    OfStore(Inspector<S>),
}

impl<S: Store + Examine> Documents<S> {
    pub(crate) async fn status(&self) -> Result<Vec<ProjectionStatus>, Failure> {
        Ok(match self {
            Self::OfApp(app) => app.status().await?,
            Self::OfStore(inspector) => inspector.status().await?,
        })
    }

    pub(crate) fn store(&self) -> &S {
        match self {
            Self::OfApp(app) => app.store(),
            Self::OfStore(inspector) => inspector.store(),
        }
    }

    /// Returns whether the code of the projections is known.
    pub(crate) fn have_code(&self) -> bool {
        matches!(self, Self::OfApp(_))
    }

    pub(crate) fn get(&self, collection: &str, id: &str) -> Get<S, Value> {
        match self {
            Self::OfApp(app) => app.get_as(collection, id),
            Self::OfStore(inspector) => inspector.get(collection, id),
        }
    }

    pub(crate) async fn parked(
        &self,
        collection: &Collection,
        after: Option<&Unit>,
        most: usize,
    ) -> Result<Vec<(Unit, Parked)>, Failure> {
        Ok(match self {
            Self::OfApp(app) => app.parked(collection.as_str(), after, most).await?,
            Self::OfStore(inspector) => inspector.parked(collection, after, most).await?,
        })
    }

    /// Returns the selected collections: one that must exist, or all.
    pub(crate) async fn collections(&self, only: Option<&str>) -> Result<Vec<Collection>, Failure> {
        match self {
            Self::OfApp(app) => select_from(app, only),
            Self::OfStore(inspector) => select(inspector.collections().await?, only),
        }
    }
}

/// Selects from the projections of an application: one that must exist, or all.
pub(crate) fn select_from<S: Store>(app: &App<S>, only: Option<&str>) -> Result<Vec<Collection>, Failure> {
    select(app.projections().cloned().collect(), only)
}

fn select(mut all: Vec<Collection>, only: Option<&str>) -> Result<Vec<Collection>, Failure> {
    let Some(only) = only else { return Ok(all) };
    if let Some(at) = all.iter().position(|name| name.as_str() == only) {
        return Ok(vec![all.swap_remove(at)]);
    }
    let known: Vec<_> = all.iter().map(Collection::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!("no read model is named {only:?}; there are: {known}");
    Err(Failure::new(Exit::Usage, message))
}
