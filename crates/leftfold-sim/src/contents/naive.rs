//! Operations on plain JSON, implemented naively.

use leftfold::Json;
use leftfold::content::{Amount, FieldOperation, Operation};
use serde_json::Value;

/// Returns the document after an operation, or `None` if the operation is impossible.
pub(super) fn operated(document: &Value, operation: &Operation) -> Option<Value> {
    let mut document = document.clone();
    for (path, step) in operation.steps() {
        let field = document.pointer_mut(&format!("/{}", path.replace('.', "/")))?;
        match step {
            FieldOperation::Increment(Amount::Whole(amount)) => *field = (field.as_i64()? + amount).into(),
            FieldOperation::Increment(Amount::Double(amount)) => *field = (field.as_f64()? + amount).into(),
            FieldOperation::Push(value) => field.as_array_mut()?.push(parsed(value)?),
            FieldOperation::Pull(value) => {
                let value = parsed(value)?;
                field.as_array_mut()?.retain(|one| *one != value);
            }
            FieldOperation::Set(value) => *field = parsed(value)?,
        }
    }
    Some(document)
}

/// Parses JSON text.
pub(super) fn parsed(json: &Json) -> Option<Value> {
    serde_json::from_str(json.as_str()).ok()
}
