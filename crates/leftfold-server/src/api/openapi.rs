//! The `OpenAPI` document, generated from the operations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::operation::{Description, Operation, PROBLEM};
use crate::Backend;

/// Returns the `OpenAPI` document.
pub(super) fn document<S: Backend>(operations: &[Operation<S>]) -> Value {
    let mut paths: BTreeMap<&str, BTreeMap<&str, Value>> = BTreeMap::new();
    for Operation { path, description, .. } in operations {
        paths.entry(path).or_default().insert(description.method, description.entry(path));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leftfold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Folds events into documents, each event exactly once and in order.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "description": "The details of an error (RFC 9457).",
                    "required": ["type", "title", "status", "detail"],
                    "properties": {
                        "type": { "type": "string" }, "title": { "type": "string" },
                        "status": { "type": "integer" }, "detail": { "type": "string" },
                    },
                },
            },
        },
    })
}

impl Description {
    /// Returns the operation's entry in the document.
    fn entry(&self, path: &str) -> Value {
        let segments = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = segments.map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
        );
        let in_query = self.query.iter().map(|(name, summary, schema)| {
            json!({ "name": name, "in": "query", "description": summary, "schema": schema })
        });
        let in_headers = self.headers.iter().map(|(name, summary)| {
            json!({ "name": name, "in": "header", "description": summary, "schema": { "type": "string" } })
        });
        let mut operation = json!({
            "operationId": self.name,
            "summary": self.summary,
            "parameters": in_path.chain(in_query).chain(in_headers).collect::<Vec<_>>(),
            "responses": self.responses(),
        });
        if !self.body.is_empty() {
            let kinds = self.body.iter().map(|(kind, schema)| (*kind, json!({ "schema": schema })));
            let content: BTreeMap<_, _> = kinds.collect();
            operation["requestBody"] = json!({ "required": !self.is_body_optional, "content": content });
        }
        if let Some(scope) = self.scope {
            operation["security"] = json!([{ "token": [scope.name()] }]);
        }
        operation
    }

    fn responses(&self) -> BTreeMap<String, Value> {
        let described = self.answers.iter().map(|answer| {
            let content = match answer.kind {
                "" => json!({}),
                kind => json!({ kind: { "schema": answer.schema } }),
            };
            (answer.status.to_string(), json!({ "description": answer.summary, "content": content }))
        });
        let problem = json!({ PROBLEM: { "schema": { "$ref": "#/components/schemas/Problem" } } });
        let default = json!({ "description": "The request failed", "content": problem });
        described.chain([("default".to_owned(), default)]).collect()
    }
}
