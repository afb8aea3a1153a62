//! `routing`: retries, backoff, fallback to the next provider, and the circuit breaker.

use trunkline_core::failure::Category;
use trunkline_engine::router::{Backoff, Breaker, RetryPolicy};

use super::error::RouterFileError;
use super::fields::Fields;
use super::yaml::{YamlNode, YamlValue};

pub(super) fn read(node: &YamlNode) -> Result<RetryPolicy, RouterFileError> {
    let default = RetryPolicy::default();
    let keys = ["max_retries", "backoff", "fallback_on", "breaker"];
    let fields = Fields::of(node, "routing", &keys, |_| None)?;
    Ok(RetryPolicy {
        max_retries: fields.count("max_retries", 0, 10)?.unwrap_or(default.max_retries),
        backoff: fields.get("backoff").map_or(Ok(default.backoff), |node| backoff(&fields, node))?,
        fallback_on: fallback_on(&fields)?,
        breaker: fields.get("breaker").map_or(Ok(default.breaker), |node| breaker(node, default.breaker))?,
    })
}

/// A time instead of a map is the initial backoff.
fn backoff(routing: &Fields<'_>, node: &YamlNode) -> Result<Backoff, RouterFileError> {
    let default = Backoff::default();
    if matches!(node.value, YamlValue::Text(_) | YamlValue::Number { .. }) {
        let initial = routing.time_of("backoff", node)?;
        return Ok(Backoff { initial, max: default.max.max(initial), ..default });
    }
    let fields = Fields::of(node, "routing: backoff", &["initial", "factor", "max"], |_| None)?;
    let initial = fields.time("initial")?.unwrap_or(default.initial);
    let factor = match fields.get("factor") {
        None => default.factor,
        Some(YamlNode { value: YamlValue::Number { number, written }, at }) => {
            let factor = number.as_f64().filter(|factor| (1.0..=100.0).contains(factor));
            factor.ok_or_else(|| fields.error(*at, format!("`factor` is {written}, and must be from 1 to 100")))?
        }
        Some(node) => return Err(fields.wrong_type("factor", node, "a number")),
    };
    let max = fields.time("max")?.unwrap_or(default.max.max(initial));
    if max < initial {
        return Err(fields.error(node.at, "`max` is shorter than `initial`"));
    }
    Ok(Backoff { initial, factor, max })
}

fn fallback_on(routing: &Fields<'_>) -> Result<Vec<Category>, RouterFileError> {
    let (names, Some(node)) = (routing.texts("fallback_on")?, routing.get("fallback_on")) else {
        return Ok(Vec::new());
    };
    // A client that cancels wants no answer from another provider either.
    let categories = || Category::ALL.into_iter().filter(|category| *category != Category::Cancelled);
    let mut chosen = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let Some(category) = categories().find(|category| category.name() == name) else {
            let at = match &node.value {
                YamlValue::List(items) => items.get(index).map_or(node.at, |item| item.at),
                YamlValue::Nothing
                | YamlValue::Bool(_)
                | YamlValue::Number { .. }
                | YamlValue::Text(_)
                | YamlValue::Map(_) => node.at,
            };
            let error = routing.error(at, format!("`fallback_on`: unknown failure category {name:?}"));
            return Err(error.suggest(name, categories().map(Category::name)));
        };
        if !chosen.contains(&category) {
            chosen.push(category);
        }
    }
    Ok(chosen)
}

fn breaker(node: &YamlNode, default: Breaker) -> Result<Breaker, RouterFileError> {
    let fields = Fields::of(node, "routing: breaker", &["failures", "window", "cooldown"], |_| None)?;
    Ok(Breaker {
        failures: fields.count("failures", 1, 1000)?.unwrap_or(default.failures),
        window: fields.time("window")?.unwrap_or(default.window),
        cooldown: fields.time("cooldown")?.unwrap_or(default.cooldown),
    })
}
