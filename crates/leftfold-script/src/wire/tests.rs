use std::time::Duration;

use super::*;
use crate::engine::Exports;
use crate::{ScriptFault, ScriptLimits};

#[test]
fn jobs_and_records_come_back_as_they_were() {
    let source = Source { file: "a.js".into(), text: "export …".into(), limits: ScriptLimits::default() };
    let item = |key, before| FoldItem { key, before, kind: "k", event: "{}" };
    for work in [
        Work::Load,
        Work::Fold(vec![item(0, Before::Nothing), item(0, Before::Last), item(1, Before::Text("{}"))]),
        Work::Route(vec!["{}", "[]"]),
    ] {
        for source in [None, Some(source.clone())] {
            let work = match &work {
                Work::Load => Work::Load,
                Work::Fold(items) => Work::Fold(items.clone()),
                Work::Route(events) => Work::Route(events.clone()),
            };
            let job = Job { script: 7, source, most_time: Duration::from_millis(5), most_bytes: 9, work };
            let (mut sent, mut frame) = (Vec::new(), Vec::new());
            job.write(&mut sent).unwrap();
            assert!(read_frame(&mut &sent[..], &mut frame).unwrap());
            assert_eq!(parse(&frame).unwrap(), job);
            for cut in 0..frame.len() {
                assert!(parse(&frame[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
    let exports = Exports { types: vec!["a".into(), "b".into()], version: 3, routes: true };
    let fault = ScriptFault { message: "no".into(), is_limit: true };
    let records = [
        Record::Loaded(exports),
        Record::Fault(fault),
        Record::Nothing,
        Record::Document("{}".into()),
        Record::Ids(vec!["x".into()]),
        Record::Skipped,
        Record::End(Duration::from_millis(7)),
    ];
    let mut sent = Vec::new();
    for record in &records {
        record.put(&mut sent);
    }
    let mut rest = &sent[..];
    for record in records {
        assert_eq!(Record::read(&mut rest).unwrap(), record);
    }
    assert!(rest.is_empty());
}
