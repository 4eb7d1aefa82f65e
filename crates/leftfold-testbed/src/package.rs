//! Programs from Debian packages.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use crate::Error;

/// Directories outside the search path where Debian installs servers.
const ALSO: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/lib/rabbitmq/bin"];
/// The script that packages run to ask whether they may start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Returns the path of a program, and installs the package if it is missing. An environment
/// variable may name another program.
pub fn program(name: &str, package: &str, variable: &str) -> Result<PathBuf, Error> {
    if let Some(named) = env::var_os(variable) {
        return Ok(named.into());
    }
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let doing = format!("installing the package {package} for its {name}");
    let advice = format!(
        "as root, run: apt-get update && apt-get install --no-install-recommends {package}; or set {variable} to your own \
         {name}"
    );
    // Other threads and processes may install the same package.
    let lock = File::create(env::temp_dir().join("leftfold-testbed-packages.lock"))
        .and_then(|lock| lock.lock().map(|()| lock));
    let _lock = lock.map_err(|error| Error::new(&doing, error))?;
    if find(name).is_none() {
        install(&doing, package).map_err(|error| error.advising(&advice))?;
    }
    find(name).ok_or_else(|| {
        Error::new(doing, "the package is installed, but the program is missing").advising(advice)
    })
}

fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(ALSO.map(PathBuf::from));
    // RabbitMQ's own script must come before the wrapper that switches the user.
    let mut places: Vec<_> = places.collect();
    places.sort_by_key(|place| place != Path::new("/usr/lib/rabbitmq/bin"));
    places.into_iter().map(|place| place.join(name)).find(|program| program.is_file())
}

fn install(doing: &str, package: &str) -> Result<(), Error> {
    let _forbidden = NoServices::forbid().map_err(|error| Error::new(doing, error))?;
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        // Some packages look at the run level instead of running the policy script.
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        let output = apt.output().map_err(|error| Error::new(doing, error))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new(doing, format!("apt-get ended with {}: {text}", output.status)))
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    // The package list may be out of date.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
}

/// A guard: no package starts a service while it exists.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    fn forbid() -> io::Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self { is_ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        Ok(Self { is_ours: true })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}
