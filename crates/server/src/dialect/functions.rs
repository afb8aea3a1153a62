//! The client's functions as chat completions have them, which is how HTTP upstreams get them from every dialect.

use serde_json::{Map, Value, json};

/// A function that the client offers. Members without a value are left out.
pub(crate) fn function<const N: usize>(name: String, more: [(&str, Option<Value>); N]) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), name.into());
    for (name, value) in more {
        function.extend(value.filter(|value| !value.is_null()).map(|value| (name.to_owned(), value)));
    }
    json!({"type": "function", "function": function})
}

/// The choice of one function, which the model has to call.
pub(crate) fn choice(name: &Value) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

/// A format of the answer that is given by a JSON Schema.
pub(crate) fn schema_format(name: &str, schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema}})
}
