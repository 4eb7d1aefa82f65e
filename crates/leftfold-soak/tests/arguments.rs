//! Checks the command-line arguments. This test also makes cargo build the binary for `cargo xtask
//! test`.

use std::process::Command;

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_leftfold-soak")).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = run(&["--daemon", "nowhere", "--minutes", "0"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("expected minutes from"), "{text}");
    assert_eq!(run(&[]).0, Some(2));
    let (status, text) = run(&["--daemon", "nowhere", "--store", "sqlite", "--quick"]);
    assert_eq!(status, Some(3));
    assert!(text.contains("the daemon nowhere"), "{text}");
}
