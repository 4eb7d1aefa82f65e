//! The location of a store: a SQLite file or a MongoDB database. **Displayed URLs never contain a
//! user or a password.**

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use leftfold_sqlite::Sqlite;

use crate::exit::{Exit, Failure};

/// The location of a store of any kind.
#[derive(Clone, Debug)]
pub enum AnyLocation {
    /// A SQLite file.
    File(SqliteFile),
    /// A MongoDB database.
    #[cfg(feature = "mongodb")]
    MongoDb(MongoDbUrl),
    /// A store of an unknown kind, with the error to report on use: an error of the argument parser
    /// would show everything that was typed.
    Unknown(String),
}

/// Parses an argument: a path, perhaps after `sqlite:`, or a URL.
impl From<OsString> for AnyLocation {
    fn from(argument: OsString) -> Self {
        let Some(text) = argument.to_str() else { return Self::File(SqliteFile(argument.into())) };
        if let Some(path) = text.strip_prefix("sqlite:") {
            return Self::File(SqliteFile(path.into()));
        }
        // Accept a URL with a missing slash, too. The driver reports the error.
        if ["mongodb:", "mongodb+srv:"].iter().any(|scheme| text.starts_with(scheme)) {
            #[cfg(feature = "mongodb")]
            return Self::MongoDb(MongoDbUrl(text.to_owned()));
            #[cfg(not(feature = "mongodb"))]
            return Self::Unknown(format!(
                "opening {}: this program was built without MongoDB; build it with --features mongodb",
                shown(text)
            ));
        }
        if text.contains("://") {
            return Self::Unknown(format!(
                "opening {}: unknown kind of store; name a file such as shop.db or sqlite:shop.db, or a database such as \
                 mongodb://localhost/shop",
                shown(text)
            ));
        }
        Self::File(SqliteFile(argument.into()))
    }
}

impl AnyLocation {
    /// Runs a command on the store at this location.
    pub async fn run(self, command: impl StoreCommand) -> Result<Exit, Failure> {
        match self {
            Self::File(file) => command.run(&file).await,
            #[cfg(feature = "mongodb")]
            Self::MongoDb(database) => command.run(&database).await,
            Self::Unknown(why) => Err(Failure::new(Exit::Usage, why)),
        }
    }
}

/// A command that runs on a store of any kind.
pub trait StoreCommand {
    /// Runs the command.
    fn run<L: Location>(self, location: &L) -> impl Future<Output = Result<Exit, Failure>>;
}

/// A location of stores of one kind.
pub trait Location: Clone + fmt::Display + Send + Sync + 'static {
    /// The type of the stores.
    type Store: leftfold::Store
        + leftfold::Sequences
        + leftfold::react::ReactionStore
        + leftfold::revision::Counters
        + leftfold::inspect::doctor::Examine;

    /// `true` if all users of the store are on this machine.
    const IS_LOCAL: bool;

    /// Opens the store, and creates missing parts.
    fn open(&self) -> impl Future<Output = Result<Self::Store, Failure>> + Send;

    /// Opens the store, which must exist.
    fn open_existing(&self) -> impl Future<Output = Result<Self::Store, Failure>> + Send;

    /// Opens the store, which must exist, without creating missing parts.
    fn open_untouched(&self) -> impl Future<Output = Result<Self::Store, Failure>> + Send {
        self.open_existing()
    }

    /// Returns the argument that names the store to another process. It may contain a password.
    fn argument(&self) -> OsString;
}

/// The path of a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteFile(pub PathBuf);

impl Location for SqliteFile {
    type Store = Sqlite;

    const IS_LOCAL: bool = true;

    async fn open(&self) -> Result<Sqlite, Failure> {
        Ok(Sqlite::open(&self.0).await?)
    }

    async fn open_existing(&self) -> Result<Sqlite, Failure> {
        // SQLite would turn an empty file into a new store.
        let fault = match self.0.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => "there is no such file",
            Ok(found) if found.is_file() && found.len() == 0 => "the file is empty",
            _ => return self.open().await,
        };
        let message = format!(
            "opening {self}: {fault}; name another with --store, or create one with `leftfold serve`"
        );
        Err(Failure::new(Exit::Store, message))
    }

    fn argument(&self) -> OsString {
        // A path may look like a URL. One that is not UTF-8 does not.
        self.0.to_str().map_or_else(|| self.0.clone().into(), |path| format!("sqlite:{path}").into())
    }
}

impl fmt::Display for SqliteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// A MongoDB database, by its URL.
#[cfg(feature = "mongodb")]
#[derive(Clone)]
pub struct MongoDbUrl(String);

#[cfg(feature = "mongodb")]
impl Location for MongoDbUrl {
    type Store = leftfold_mongodb::Mongo;

    const IS_LOCAL: bool = false;

    async fn open(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::connect(&self.0).await?)
    }

    async fn open_existing(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::options().existing().connect(&self.0).await?)
    }

    async fn open_untouched(&self) -> Result<Self::Store, Failure> {
        Ok(leftfold_mongodb::Mongo::options().untouched().connect(&self.0).await?)
    }

    fn argument(&self) -> OsString {
        OsString::from(&self.0)
    }
}

#[cfg(feature = "mongodb")]
impl fmt::Display for MongoDbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

#[cfg(feature = "mongodb")]
impl fmt::Debug for MongoDbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a URL without secrets: user and password are before the last `@`, and the options may
/// contain more.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let rest = rest.trim_start_matches('/');
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let (rest, options) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    format!("{scheme}://{user}{rest}{options}")
}

/// Removes the secrets of URLs from a text.
pub fn without_secrets(text: &str) -> String {
    // The example in error messages is not a secret.
    const EXAMPLE: &str = "user:password";
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    let mut safe = String::with_capacity(text.len());
    for word in text.split_inclusive(ends) {
        let parts = word.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
        match parts {
            Some((scheme, (user, rest))) if user != EXAMPLE => safe.extend([scheme, "://…@", rest]),
            _ => safe.push_str(word),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_unless_it_is_a_url() {
        for (named, path) in
            [("shop.db", "shop.db"), ("sqlite:a b", "a b"), ("C:\\shop", "C:\\shop"), ("", "")]
        {
            match AnyLocation::from(OsString::from(named)) {
                AnyLocation::File(file) => assert_eq!(file.0, PathBuf::from(path)),
                other => panic!("{named} is {other:?}"),
            }
        }
        for named in ["postgres://ann:secret@host/shop", "MONGODB://ann:secret@host/shop"] {
            match AnyLocation::from(OsString::from(named)) {
                AnyLocation::Unknown(why) => {
                    assert!(why.contains("://…@host/shop: unknown kind of store"), "{why}");
                }
                other => panic!("{named} is {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let cases = [
            ("mongodb://localhost/shop", "mongodb://localhost/shop"),
            ("mongodb://ann:secret@a:1,b:2/shop?replicaSet=rs0", "mongodb://…@a:1,b:2/shop?…"),
            ("mongodb+srv://ann@host/?tlsCertificateKeyFilePassword=secret", "mongodb+srv://…@host/?…"),
            ("mongodb://ann:se/cr@et?@host", "mongodb://…@host"),
            ("mongodb:/ann:secret@host", "mongodb://…@host"),
        ];
        for (url, expected) in cases {
            assert_eq!(shown(url), expected);
            #[cfg(feature = "mongodb")]
            assert!(!format!("{:?}", AnyLocation::from(OsString::from(url))).contains("secret"), "{url}");
        }
    }

    #[test]
    fn what_was_typed_is_repeated_without_secrets() {
        let said =
            without_secrets("unexpected argument 'mongodb://ann:secret@host/shop' found\n mail ann@host");
        assert_eq!(said, "unexpected argument 'mongodb://…@host/shop' found\n mail ann@host");
    }
}
