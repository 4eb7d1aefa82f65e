//! The kinds of server and their options.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fs, io};

use crate::Error;

/// The name of every replica set.
pub(super) const SET: &str = "rs0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Standalone,
    ReplicaSet,
    /// A replica set with access control.
    Guarded,
}

impl Kind {
    /// Returns options for a `mongod` that is small and fast rather than durable.
    pub(super) fn options(self, place: &Path) -> Result<Vec<OsString>, Error> {
        // Without this the empty journal takes 300 MB.
        const SMALL_JOURNAL: &str = "log=(prealloc=false,file_max=16MB)";
        let always = [
            "--setParameter",
            "enableTestCommands=1",
            "--wiredTigerCacheSizeGB",
            "0.25",
            "--wiredTigerEngineConfigString",
            SMALL_JOURNAL,
        ];
        let mut options = Vec::from(always.map(OsString::from));
        if self != Self::Standalone {
            options.extend(["--replSet", SET, "--oplogSize", "256"].map(OsString::from));
        }
        if self == Self::Guarded {
            let key =
                key_file(place).map_err(|error| Error::new("writing the key of a replica set", error))?;
            options.extend(["--auth".into(), "--keyFile".into(), key]);
        } else {
            options.push("--noauth".into());
        }
        Ok(options)
    }
}

/// Writes the key with which members of a set authenticate each other. Only its owner may read it.
fn key_file(place: &Path) -> io::Result<OsString> {
    let path = place.join("key");
    fs::write(&path, "membersOfThisSetKnowEachOtherByThis")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(path.into())
}
