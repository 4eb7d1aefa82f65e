//! The databases of one server.

use leftfold_testbed::mongodb::Server;
use mongodb::options::{DatabaseOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Database};

use crate::report::Result;

/// The databases of one server. All their names begin with `leftfold_bench_`.
pub(crate) struct Databases {
    url: String,
    client: Client,
    /// The private server, if there is one.
    _server: Option<Server>,
}

impl Databases {
    /// Starts a private server.
    pub(crate) async fn private() -> Result<Self> {
        let server = Server::replica_set(1).await?;
        let databases = Self::at(&server.url()).await?;
        Ok(Self { _server: Some(server), ..databases })
    }

    /// Connects to the server with this URL and ignores the database that it names.
    pub(crate) async fn at(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), client: Client::with_uri_str(url).await?, _server: None })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the URL of the database of a place.
    pub(super) fn url_of(&self, place: &str) -> String {
        let (base, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("mongodb", base));
        let hosts = rest.split_once('/').map_or(rest, |(hosts, _)| hosts);
        format!("{scheme}://{hosts}/{}?{options}", name(place))
    }

    /// Returns the database of a place, with the write and read concerns that Leftfold uses.
    pub(crate) fn database(&self, place: &str) -> Database {
        let mut durable = WriteConcern::majority();
        durable.journal = Some(true);
        let mut options = DatabaseOptions::default();
        options.write_concern = Some(durable);
        options.read_concern = Some(ReadConcern::majority());
        self.client.database_with_options(&name(place), options)
    }
}

fn name(place: &str) -> String {
    format!("leftfold_bench_{place}")
}
