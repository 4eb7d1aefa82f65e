//! The daemon's page of the guide: the test runs its commands, which must print the output shown
//! there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/guide/daemon.md");

/// The commands of a block, and their output.
struct Block {
    commands: String,
    printed: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for part in page.split("\n```").skip(1) {
        if let Some(commands) = part.strip_prefix("sh\n") {
            blocks.push(Block { commands: commands.to_owned(), printed: String::new() });
        } else if let Some(printed) = part.strip_prefix("text\n") {
            printed.clone_into(&mut blocks.last_mut().unwrap().printed);
        }
    }
    blocks
}

/// Returns whether a text is as expected, where `…` matches anything.
fn fits(text: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap()) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|last| last.is_empty() || text.ends_with(last))
}

#[test]
fn the_page_is_true() {
    let curl = leftfold_testbed::program("curl", "curl", "LEFTFOLD_CURL").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let blocks = blocks(&PAGE.replace("7777", &port));
    assert!(blocks.len() > 6, "{}", blocks.len());
    let mut script =
        "set -eu; mkdir printed; printed=$PWD/printed; trap 'kill -9 $(jobs -p) || true' EXIT\n".to_owned();
    for (number, block) in blocks.iter().enumerate() {
        // In braces, so that a block can change the directory and set variables.
        writeln!(script, "{{ {}\n}} > $printed/{number} 2>&1", block.commands).unwrap();
        if number == 0 {
            writeln!(script, "sed -i s/7777/{port}/ leftfold.toml").unwrap();
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_leftfold")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = [binary, curl.parent().unwrap()].map(Path::to_owned);
    let path = std::env::join_paths(places.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut bash = Command::new("timeout");
    let bash = bash.args(["120", "bash", "-c", &script]).current_dir(directory.path()).env("PATH", path);
    let output = bash.output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut complete = true;
    for (number, block) in blocks.iter().enumerate() {
        let printed = std::fs::read_to_string(directory.path().join("printed").join(number.to_string()));
        let Ok(printed) = printed else {
            complete = false;
            continue;
        };
        assert!(
            fits(printed.trim_end(), block.printed.trim_end()),
            "the page says that\n\n{}\nprints\n\n{}\nand it printed\n\n{printed}\n{said}",
            block.commands,
            block.printed
        );
    }
    assert!(complete && output.status.success(), "{said}");
}
