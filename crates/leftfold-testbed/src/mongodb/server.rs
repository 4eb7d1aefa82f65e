//! A server as tests see it: one `mongod`, or a replica set of them.

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

/// The user who may do anything, and the password.
const ROOT: (&str, &str) = ("root", "the-root-password");

/// A private MongoDB server, gone when dropped. Members are named by their index, from 0.
///
/// It can be used from several runtimes: nothing in it belongs to the one it was started in.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    // Before the place, so that they are ended when it is removed.
    members: Vec<Member>,
    place: Place,
}

impl Server {
    /// One that is no replica set: without transactions and change streams.
    pub async fn standalone() -> Result<Self, Error> {
        let mut server = Self::launch(Kind::Standalone, 1).await?;
        server.listen().await?;
        server.settle().await?;
        Ok(server)
    }

    /// A replica set of one or three members, which elect another primary within a second or two.
    ///
    /// It has a primary, and all others are secondaries.
    pub async fn replica_set(members: usize) -> Result<Self, Error> {
        if members != 1 && members != 3 {
            let doing = format!("starting a replica set of {members} members");
            return Err(Error::new(doing, "use 1, or 3 for one that survives the loss of a member"));
        }
        Self::set(Kind::ReplicaSet, members).await
    }

    /// A replica set of one member that asks who one is. [`Server::url`] is that of a user who may do anything.
    pub async fn with_access_control() -> Result<Self, Error> {
        let server = Self::set(Kind::Guarded, 1).await?;
        let (user, password) = ROOT;
        // As long as there is no user, one who comes from the same machine may make the first.
        let first = doc! { "createUser": user, "pwd": password, "roles": ["root"] };
        server.members[0].command(None, first).await?;
        Ok(server)
    }

    /// How clients address it.
    pub fn url(&self) -> String {
        match self.kind {
            Kind::Guarded => self.url_as(ROOT.0, ROOT.1),
            Kind::Standalone | Kind::ReplicaSet => self.url_without_user(),
        }
    }

    /// How clients address it as a user; neither name nor password may need escaping.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("mongodb://{user}:{password}@{}&authSource=admin", self.address())
    }

    /// How clients address it without saying who they are.
    pub fn url_without_user(&self) -> String {
        format!("mongodb://{}", self.address())
    }

    /// How many members it has, running or not.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The port of a member, which stays the same.
    pub fn port(&self, member: usize) -> Result<u16, Error> {
        Ok(self.member(member)?.port())
    }

    /// The process id of a member, if it runs.
    pub fn process_id(&self, member: usize) -> Result<Option<u32>, Error> {
        Ok(self.member(member)?.id())
    }

    /// The directory with the data and the logs of its members.
    pub fn directory(&self) -> &Path {
        self.place.path()
    }

    /// The member that is primary now. Waits until there is one.
    pub async fn primary(&self) -> Result<usize, Error> {
        let clients = self.members.iter().map(|member| Ok((member, member.client(None)?)));
        let clients: Vec<_> = clients.collect::<Result<_, Error>>()?;
        let doing = format!("waiting for a primary of {}", self.address());
        until(&doing, || async { Ok(elected(&clients).await) }).await.map_err(|error| self.with_logs(error))
    }

    /// Kills a member with SIGKILL, and returns when it is gone. One that does not run is left as it is.
    pub async fn kill(&self, member: usize) -> Result<(), Error> {
        self.member(member)?.kill().await
    }

    /// Starts a member that was killed: with its data, at its port. Returns when it is primary or secondary; one that runs
    /// is only waited for.
    pub async fn start(&self, member: usize) -> Result<(), Error> {
        let member = self.member(member)?;
        if !member.runs() {
            let begun = Instant::now();
            loop {
                member.launch().await?;
                if member.listens().await? {
                    break;
                }
                // Somebody was given its port meanwhile; most do not keep it for long.
                member.kill().await?;
                if begun.elapsed() > PATIENCE {
                    let doing = format!("starting mongod at {} again", member.host());
                    return Err(Error::new(doing, "another process keeps its port; start a new server"));
                }
            }
        }
        self.settled(member).await
    }

    /// Has a member stand still with SIGSTOP, and returns when it does. Its connections stay open.
    pub async fn freeze(&self, member: usize) -> Result<(), Error> {
        self.member(member)?.freeze().await
    }

    /// Lets a frozen member go on.
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

    /// Runs a command of the database `admin` at a member, as a user who may do anything.
    pub async fn command(&self, member: usize, command: Document) -> Result<Document, Error> {
        let root = (self.kind == Kind::Guarded).then(|| {
            let (user, password) = ROOT;
            Credential::builder().username(user.to_owned()).password(password.to_owned()).build()
        });
        self.member(member)?.command(root, command).await
    }

    /// Ends it and removes its directory, as dropping it does, but says so if that fails.
    pub async fn shutdown(self) -> Result<(), Error> {
        for member in &self.members {
            member.kill().await?;
        }
        self.place.remove()
    }

    async fn launch(kind: Kind, count: usize) -> Result<Self, Error> {
        let fetched = spawn_blocking(|| binary::fetch(|_| {})).await;
        let mongod = fetched.map_err(|error| Error::new("looking for mongod", error))??;
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

    /// Waits until all members take connections, at other ports if others have theirs.
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

    /// Waits until all members are what they are to be.
    async fn settle(&self) -> Result<(), Error> {
        for member in &self.members {
            self.settled(member).await?;
        }
        Ok(())
    }

    async fn settled(&self, member: &Member) -> Result<(), Error> {
        let doing = format!("waiting until mongod at {} is ready", member.host());
        let client = member.client(None)?;
        // One that is alone has to be the primary.
        let alone = self.members.len() == 1;
        until(&doing, || async {
            if !member.can_answer() {
                return Err(Error::new(&doing, "it is frozen, or has ended"));
            }
            let said = hello(&client).await.unwrap_or_default();
            Ok((says(&said, "isWritablePrimary") || !alone && says(&said, "secondary")).then_some(()))
        })
        .await
        .map_err(|error| Error::new(error, member.last_words()))
    }

    fn member(&self, index: usize) -> Result<&Member, Error> {
        let missing = || {
            let why = format!("the server has {}, counted from 0", self.members.len());
            Error::new(format!("looking for member {index}"), why)
        };
        self.members.get(index).ok_or_else(missing)
    }

    /// The URL without its scheme.
    fn address(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(Member::host).collect();
        let hosts = hosts.join(",");
        match self.kind {
            Kind::Standalone => format!("{hosts}/?directConnection=true"),
            Kind::ReplicaSet | Kind::Guarded => format!("{hosts}/?replicaSet={SET}"),
        }
    }

    fn with_logs(&self, error: Error) -> Error {
        let logs: Vec<_> = self.members.iter().map(Member::last_words).collect();
        Error::new(error, logs.join("\n"))
    }
}

/// Who says to be primary; if several do, the one elected last.
async fn elected(clients: &[(&Member, Client)]) -> Option<usize> {
    let mut primaries = Vec::new();
    for (index, (member, client)) in clients.iter().enumerate() {
        if !member.can_answer() {
            continue;
        }
        let said = hello(client).await.unwrap_or_default();
        if says(&said, "isWritablePrimary") {
            primaries.push((said.get_object_id("electionId").ok(), index));
        }
    }
    primaries.into_iter().max().map(|(_, index)| index)
}

fn says(document: &Document, key: &str) -> bool {
    document.get_bool(key).unwrap_or(false)
}
