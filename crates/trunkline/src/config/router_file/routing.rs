//! `routing`: how often to try, how long to wait, when to go on to the next provider, when to leave one alone.

use trunkline_core::failure::Category;
use trunkline_engine::router::{Backoff, Breaker, Policy};

use super::fields::Fields;
use super::mistake::Mistake;
use super::yaml::{Node, Value};

pub(super) fn read(node: &Node) -> Result<Policy, Mistake> {
    let default = Policy::default();
    let keys = ["max_retries", "backoff", "fallback_on", "breaker"];
    let fields = Fields::of(node, "routing", &keys, |_| None)?;
    Ok(Policy {
        max_retries: fields.count("max_retries", 0, 10)?.unwrap_or(default.max_retries),
        backoff: fields.get("backoff").map_or(Ok(default.backoff), |node| backoff(&fields, node))?,
        fallback_on: fallback_on(&fields)?,
        breaker: fields.get("breaker").map_or(Ok(default.breaker), |node| breaker(node, default.breaker))?,
    })
}

/// A time alone is the first wait.
fn backoff(routing: &Fields<'_>, node: &Node) -> Result<Backoff, Mistake> {
    let default = Backoff::default();
    if matches!(node.value, Value::Text(_) | Value::Number { .. }) {
        let initial = routing.time_of("backoff", node)?;
        return Ok(Backoff { initial, max: default.max.max(initial), ..default });
    }
    let fields = Fields::of(node, "routing: backoff", &["initial", "factor", "max"], |_| None)?;
    let initial = fields.time("initial")?.unwrap_or(default.initial);
    let factor = match fields.get("factor") {
        None => default.factor,
        Some(Node { value: Value::Number { number, written }, at }) => {
            let factor = number.as_f64().filter(|factor| (1.0..=100.0).contains(factor));
            factor.ok_or_else(|| fields.mistake(*at, format!("`factor` is {written}, and must be from 1 to 100")))?
        }
        Some(node) => return Err(fields.wanted("factor", node, "a number")),
    };
    let max = fields.time("max")?.unwrap_or(default.max.max(initial));
    if max < initial {
        return Err(fields.mistake(node.at, "`max` is shorter than `initial`"));
    }
    Ok(Backoff { initial, factor, max })
}

fn fallback_on(routing: &Fields<'_>) -> Result<Vec<Category>, Mistake> {
    let (names, Some(node)) = (routing.texts("fallback_on")?, routing.get("fallback_on")) else {
        return Ok(Vec::new());
    };
    // Who cancels wants no answer from anybody.
    let categories = || Category::ALL.into_iter().filter(|category| *category != Category::Cancelled);
    let mut chosen = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let Some(category) = categories().find(|category| category.name() == name) else {
            let at = match &node.value {
                Value::List(items) => items.get(index).map_or(node.at, |item| item.at),
                Value::Nothing | Value::Bool(_) | Value::Number { .. } | Value::Text(_) | Value::Map(_) => node.at,
            };
            let mistake = routing.mistake(at, format!("`fallback_on`: unknown kind of failure {name:?}"));
            return Err(mistake.suggest(name, categories().map(Category::name)));
        };
        if !chosen.contains(&category) {
            chosen.push(category);
        }
    }
    Ok(chosen)
}

fn breaker(node: &Node, default: Breaker) -> Result<Breaker, Mistake> {
    let fields = Fields::of(node, "routing: breaker", &["failures", "window", "cooldown"], |_| None)?;
    Ok(Breaker {
        failures: fields.count("failures", 1, 1000)?.unwrap_or(default.failures),
        window: fields.time("window")?.unwrap_or(default.window),
        cooldown: fields.time("cooldown")?.unwrap_or(default.cooldown),
    })
}
