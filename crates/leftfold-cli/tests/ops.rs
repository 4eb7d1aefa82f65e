//! The commands for operators, on a file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;

use common::scenarios::shop;
use common::{File, Place as _, command, run};

scenarios!(File::new());

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let place = File::new();
    let id = ["cart_details", "cart-1"];
    let commands = [
        vec!["status"],
        vec!["get", id[0], id[1]],
        vec!["parked", "list"],
        vec!["parked", "retry", "--all"],
        vec!["explain", id[0], id[1]],
        vec!["refold", id[0], id[1]],
    ];
    for command in commands {
        place.run(&command).exits(3).says("there is no such file; name another with --store");
        assert!(!place.file.exists(), "{command:?}");
    }
    std::fs::write(&place.file, "").unwrap();
    place.run(&["status"]).exits(3).says("the file is empty");
    assert_eq!(std::fs::read(&place.file).unwrap(), b"");
    // Without --store it is a file in the current directory.
    let here = run(command().arg("status").current_dir(place.directory.path())).exits(3);
    here.says("opening leftfold.db: there is no such file");
}

#[tokio::test]
async fn a_command_that_can_not_be_understood_says_so() {
    let place = File::new();
    shop(&place).await;
    for command in [["get", "carts", "1"], ["explain", "carts", "1"], ["refold", "carts", "1"]] {
        let answer = place.run(&command).exits(2).says("no read model is named \"carts\"");
        answer.says("cart_details, client_summary, daily_totals, open_carts");
    }
    place.run(&["parked", "list", "carts"]).exits(2).says("no read model is named \"carts\"");
    place.run(&["parked", "retry"]).exits(2).says("--all");
    place.run(&["get", "cart_details", ""]).exits(2).says("document id");
    place.run(&["sing"]).exits(2);
    run(command().arg("--help")).exits(0).says("Exit status:");
}
