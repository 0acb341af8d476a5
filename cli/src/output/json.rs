//! JSON output: one object with `"schema"` and `"type"`, keys may only be added.

use serde::Serialize;
use serde_json::{Map, Value};

/// Version of the JSON output; grows only when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// `value` in its envelope. A value that is not an object goes under `"value"`.
pub fn envelope(kind: &str, value: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut object = match serde_json::to_value(value)? {
        Value::Object(object) => object,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    object.insert("schema".to_owned(), SCHEMA.into());
    object.insert("type".to_owned(), kind.into());
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use computerd_api::v1::{OperationReference, PathText};

    #[test]
    fn objects_are_flattened_and_carry_schema_and_type() {
        let value = OperationReference {
            id: 12,
            undo: "kura undo demo 12".into(),
        };
        assert_eq!(
            envelope("operation", &value).unwrap().to_string(),
            r#"{"id":12,"schema":1,"type":"operation","undo":"kura undo demo 12"}"#
        );
        let path = PathText(vec![0xff]);
        assert_eq!(
            envelope("paths", &[path]).unwrap().to_string(),
            r#"{"schema":1,"type":"paths","value":[{"bytes_hex":"ff"}]}"#
        );
    }
}
