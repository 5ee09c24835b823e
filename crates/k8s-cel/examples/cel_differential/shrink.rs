//! Makes a selector and its device smaller while they stay interesting.

use serde_json::Value;

/// Questions asked at most.
const MAX_TRIALS: usize = 1000;

/// The smallest case found that is still interesting: runs of tokens, then attributes and capacities are left out.
pub(crate) fn shrink(mut case: Value, mut interesting: impl FnMut(&Value) -> bool) -> Value {
    let mut trials = 0;
    let mut is_interesting = |candidate: &Value| {
        trials += 1;
        trials <= MAX_TRIALS && interesting(candidate)
    };
    let mut tokens = tokens(case["expr"].as_str().unwrap_or_default());
    let mut run = tokens.len() / 2;
    while run > 0 {
        let mut start = 0;
        while start < tokens.len() {
            let mut fewer = tokens.clone();
            fewer.drain(start..(start + run).min(tokens.len()));
            let mut candidate = case.clone();
            candidate["expr"] = fewer.concat().into();
            // Nothing is a difference of its own: the place of the error in it.
            if !fewer.is_empty() && is_interesting(&candidate) {
                (case, tokens) = (candidate, fewer);
            } else {
                start += run;
            }
        }
        run /= 2;
    }
    for part in ["attributes", "capacity"] {
        let names: Vec<String> =
            case["device"][part].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        for name in names {
            let mut candidate = case.clone();
            if let Some(fields) = candidate["device"][part].as_object_mut() {
                fields.remove(&name);
            }
            if is_interesting(&candidate) {
                case = candidate;
            }
        }
    }
    case
}

/// Words, numbers and texts in quotes as one, anything else by character.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut quote = None;
    let mut in_word = false;
    for char in text.chars() {
        let is_word = char.is_alphanumeric() || char == '_';
        match tokens.last_mut() {
            Some(last) if quote.is_some() || in_word && is_word => last.push(char),
            _ => tokens.push(char.to_string()),
        }
        if quote == Some(char) {
            quote = None;
        } else if quote.is_none() && (char == '\'' || char == '"') {
            quote = Some(char);
        }
        in_word = is_word && quote.is_none();
    }
    tokens
}
