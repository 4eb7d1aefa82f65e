//! The read models that commands work with: those of a `leftfold.toml`, or the example's.

use std::path::Path;

use leftfold::{App, Leftfold, Store};
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

use crate::args;
use crate::daemon::{Config, FILE};
use crate::exit::{Exit, Failure};
use crate::place::{File, Named, Place};

/// The example's.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// The file of the store, if none is named.
const STORE_FILE: &str = "leftfold.db";

pub(crate) enum Models {
    /// Those of the example, a small shop.
    Shop,
    /// Those that a file names. They are compiled when they are needed: who looks at what is held needs none.
    Scripts(Box<Config>),
}

impl Models {
    /// What the arguments are about: the file that `--config` names; else the store that `--store` names, with the example's read models; else
    /// the file that is here, if there is one.
    pub(crate) fn choose(args: &args::Store) -> Result<(Named, Self), Failure> {
        let file = match (&args.config, &args.named) {
            (Some(file), _) => file.as_path(),
            (None, Some(named)) => return Ok((named.clone(), Self::Shop)),
            (None, None) if Path::new(FILE).is_file() => Path::new(FILE),
            (None, None) => return Ok((Named::File(File(STORE_FILE.into())), Self::Shop)),
        };
        let config = Config::read(file)?;
        Ok((config.place()?, Self::Scripts(Box::new(config))))
    }

    /// Opens the store, or makes it; no worker runs.
    pub(crate) async fn open<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open().await?).await
    }

    /// Opens the store, which must be there.
    pub(crate) async fn open_existing<P: Place>(&self, place: &P) -> Result<App<P::Store>, Failure> {
        self.on(place.open_existing().await?).await
    }

    async fn on<S: Store>(&self, store: S) -> Result<App<S>, Failure> {
        // Where there can be no log, nothing else is to be made.
        store.heads().await?;
        let app = Leftfold::on(store);
        let app = match self {
            Self::Shop => app
                .projection(CartDetails)
                .projection(ClientSummary)
                .projection(DailyTotals)
                .projection(OpenCarts),
            Self::Scripts(config) => config.scripts()?.into_iter().fold(app, Leftfold::projection),
        };
        Ok(app.open().await?)
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Shop => COLLECTIONS.to_vec(),
            Self::Scripts(config) => config.projections.iter().map(|one| one.name.as_str()).collect(),
        }
    }

    /// Those that are meant: one that must be there, or all.
    pub(crate) fn named<'n>(&'n self, collection: Option<&'n str>) -> Result<Vec<&'n str>, Failure> {
        match collection {
            None => Ok(self.names()),
            Some(collection) => self.known(collection).map(|()| vec![collection]),
        }
    }

    /// Checks the name of one.
    pub(crate) fn known(&self, collection: &str) -> Result<(), Failure> {
        let names = self.names();
        if names.contains(&collection) {
            return Ok(());
        }
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("no read model is named {collection:?}; there are: {there}");
        Err(Failure::new(Exit::Usage, message))
    }
}
