//! A server as tests see it: one `mongod`, or a replica set.

use std::path::Path;

use ::mongodb::Client;
use ::mongodb::bson::{Document, doc};
use ::mongodb::options::Credential;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::binary;
use super::kind::{Kind, SET};
use super::member::{Member, hello};
use crate::Error;
use crate::place::Place;
use crate::until::{PATIENCE, until};

/// The name and password of a user with all rights.
const ROOT: (&str, &str) = ("root", "the-root-password");

/// A private MongoDB server, stopped on drop. Members have indexes, from 0.
///
/// It can be used from several runtimes: no part of it belongs to the runtime it was started in.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    // Declared before the place, so that the members stop before it is removed.
    members: Vec<Member>,
    place: Place,
}

impl Server {
    /// Starts a server without a replica set, which has no transactions and no change streams.
    pub async fn standalone() -> Result<Self, Error> {
        let mut server = Self::launch(Kind::Standalone, 1).await?;
        server.listen().await?;
        server.settle().await?;
        Ok(server)
    }

    /// Starts a replica set of one or three members, which elect another primary within a second or
    /// two.
    ///
    /// When this returns, one member is primary and all others are secondaries.
    pub async fn replica_set(members: usize) -> Result<Self, Error> {
        if members != 1 && members != 3 {
            let doing = format!("starting a replica set of {members} members");
            return Err(Error::new(doing, "use 1 member, or 3 to survive the loss of one"));
        }
        Self::set(Kind::ReplicaSet, members).await
    }

    /// Starts a replica set of one member with access control. [`Server::url`] contains a user with
    /// all rights.
    pub async fn with_access_control() -> Result<Self, Error> {
        let server = Self::set(Kind::Guarded, 1).await?;
        let (user, password) = ROOT;
        // While there is no user, a local client may create the first one.
        let first = doc! { "createUser": user, "pwd": password, "roles": ["root"] };
        server.members[0].command(None, first).await?;
        Ok(server)
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        match self.kind {
            Kind::Guarded => self.url_as(ROOT.0, ROOT.1),
            Kind::Standalone | Kind::ReplicaSet => self.url_without_user(),
        }
    }

    /// Returns the URL for a user. Neither the name nor the password may need escaping.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("mongodb://{user}:{password}@{}&authSource=admin", self.address())
    }

    /// Returns the URL without credentials.
    pub fn url_without_user(&self) -> String {
        format!("mongodb://{}", self.address())
    }

    /// Returns the number of members, running or not.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the port of a member, which never changes.
    pub fn port(&self, member: usize) -> Result<u16, Error> {
        Ok(self.member(member)?.port())
    }

    /// Returns the process id of a member, if it runs.
    pub fn process_id(&self, member: usize) -> Result<Option<u32>, Error> {
        Ok(self.member(member)?.id())
    }

    /// Returns the directory with the data and logs of the members.
    pub fn directory(&self) -> &Path {
        self.place.path()
    }

    /// Waits for a primary and returns its index.
    pub async fn primary(&self) -> Result<usize, Error> {
        let clients = self.members.iter().map(|member| Ok((member, member.client(None)?)));
        let clients: Vec<_> = clients.collect::<Result<_, Error>>()?;
        let doing = format!("waiting for a primary of {}", self.address());
        until(&doing, || async { Ok(elected(&clients).await) }).await.map_err(|error| self.with_logs(error))
    }

    /// Kills a member with SIGKILL and waits until it is gone. Does nothing if the member does not
    /// run.
    pub async fn kill(&self, member: usize) -> Result<(), Error> {
        self.member(member)?.kill().await
    }

    /// Starts a killed member again, with its data and on its port. Returns when it is primary or
    /// secondary. If the member already runs, this only waits.
    pub async fn start(&self, member: usize) -> Result<(), Error> {
        let member = self.member(member)?;
        if !member.runs() {
            let begun = Instant::now();
            loop {
                member.launch().await?;
                if member.listens().await? {
                    break;
                }
                // Another process got the port in the meantime. Most processes release it soon.
                member.kill().await?;
                if begun.elapsed() > PATIENCE {
                    let doing = format!("starting mongod at {} again", member.host());
                    return Err(Error::new(doing, "another process keeps its port; start a new server"));
                }
            }
        }
        self.settled(member).await
    }

    /// Stops a member with SIGSTOP and waits until it has stopped. Its connections stay open.
    pub async fn freeze(&self, member: usize) -> Result<(), Error> {
        self.member(member)?.freeze().await
    }

    /// Continues a frozen member.
    pub fn thaw(&self, member: usize) -> Result<(), Error> {
        self.member(member)?.thaw()
    }

    /// Sets a fail point at the primary; see [`Server::command`].
    ///
    /// ```no_run
    /// # use mongodb::bson::doc;
    /// # async fn test(server: leftfold_testbed::mongodb::Server) -> Result<(), leftfold_testbed::Error> {
    /// server
    ///     .fail_point(doc! {
    ///         "configureFailPoint": "failCommand",
    ///         "mode": { "times": 1 },
    ///         "data": { "failCommands": ["insert"], "closeConnection": true },
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn fail_point(&self, command: Document) -> Result<(), Error> {
        self.command(self.primary().await?, command).await.map(drop)
    }

    /// Runs a command on the database `admin` of a member, as a user with all rights.
    pub async fn command(&self, member: usize, command: Document) -> Result<Document, Error> {
        let root = (self.kind == Kind::Guarded).then(|| {
            let (user, password) = ROOT;
            Credential::builder().username(user.to_owned()).password(password.to_owned()).build()
        });
        self.member(member)?.command(root, command).await
    }

    /// Stops the server and removes its directory, as a drop does, but reports errors.
    pub async fn shutdown(self) -> Result<(), Error> {
        for member in &self.members {
            member.kill().await?;
        }
        self.place.remove()
    }

    async fn launch(kind: Kind, count: usize) -> Result<Self, Error> {
        let fetched = spawn_blocking(|| binary::fetch(|_| {})).await;
        let mongod = fetched.map_err(|error| Error::new("finding mongod", error))??;
        let place = Place::new()?;
        let mut members = Vec::new();
        for index in 0..count {
            let directory = place.path().join(format!("member-{index}"));
            let member = Member::new(mongod.clone(), kind.options(place.path())?, directory)?;
            member.launch().await?;
            members.push(member);
        }
        Ok(Self { kind, members, place })
    }

    async fn set(kind: Kind, count: usize) -> Result<Self, Error> {
        let mut server = Self::launch(kind, count).await?;
        server.listen().await?;
        server.initiate().await?;
        server.primary().await?;
        server.settle().await?;
        Ok(server)
    }

    /// Waits until all members accept connections. Moves a member to another port if its port is
    /// taken.
    async fn listen(&mut self) -> Result<(), Error> {
        for member in &mut self.members {
            while !member.listens().await? {
                member.launch_elsewhere().await?;
            }
        }
        Ok(())
    }

    async fn initiate(&self) -> Result<(), Error> {
        let members: Vec<_> = (0_i32..)
            .zip(&self.members)
            .map(|(id, member)| doc! { "_id": id, "host": member.host() })
            .collect();
        let settings = doc! { "electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 500 };
        let set = doc! { "_id": SET, "members": members, "settings": settings };
        self.members[0].command(None, doc! { "replSetInitiate": set }).await.map(drop)
    }

    /// Waits until every member is primary or secondary.
    async fn settle(&self) -> Result<(), Error> {
        for member in &self.members {
            self.settled(member).await?;
        }
        Ok(())
    }

    async fn settled(&self, member: &Member) -> Result<(), Error> {
        let doing = format!("waiting until mongod at {} is ready", member.host());
        let client = member.client(None)?;
        // The only member must be the primary.
        let alone = self.members.len() == 1;
        until(&doing, || async {
            if !member.can_answer() {
                return Err(Error::new(&doing, "it is frozen, or has ended"));
            }
            let hello = hello(&client).await.unwrap_or_default();
            Ok((is_true(&hello, "isWritablePrimary") || !alone && is_true(&hello, "secondary")).then_some(()))
        })
        .await
        .map_err(|error| Error::new(error, member.last_lines()))
    }

    fn member(&self, index: usize) -> Result<&Member, Error> {
        let missing = || {
            let why = format!("the server has {}, counted from 0", self.members.len());
            Error::new(format!("finding member {index}"), why)
        };
        self.members.get(index).ok_or_else(missing)
    }

    /// Returns the URL without its scheme.
    fn address(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(Member::host).collect();
        let hosts = hosts.join(",");
        match self.kind {
            Kind::Standalone => format!("{hosts}/?directConnection=true"),
            Kind::ReplicaSet | Kind::Guarded => format!("{hosts}/?replicaSet={SET}"),
        }
    }

    fn with_logs(&self, error: Error) -> Error {
        let logs: Vec<_> = self.members.iter().map(Member::last_lines).collect();
        Error::new(error, logs.join("\n"))
    }
}

/// Returns the member that claims to be primary; of several, the one elected last.
async fn elected(clients: &[(&Member, Client)]) -> Option<usize> {
    let mut primaries = Vec::new();
    for (index, (member, client)) in clients.iter().enumerate() {
        if !member.can_answer() {
            continue;
        }
        let hello = hello(client).await.unwrap_or_default();
        if is_true(&hello, "isWritablePrimary") {
            primaries.push((hello.get_object_id("electionId").ok(), index));
        }
    }
    primaries.into_iter().max().map(|(_, index)| index)
}

fn is_true(document: &Document, key: &str) -> bool {
    document.get_bool(key).unwrap_or(false)
}
