//! `spec.tolerations`.

use model::{Toleration, TolerationOperator};

use crate::context::Context;
use crate::error::Problem;
use crate::field::Field;

pub(super) fn decode(list: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Vec<Toleration>, Problem> {
    list.items()?.map(|item| decode_one(&item, context)).collect()
}

fn decode_one(item: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Toleration, Problem> {
    item.only(&["key", "operator", "value", "effect", "tolerationSeconds"])?;
    let key = item.field("key")?.str_or_empty()?;
    let operator: TolerationOperator = item.field("operator")?.name_of()?;
    if key.is_empty() && operator != TolerationOperator::Exists {
        return Err(item.field("operator")?.invalid("must be Exists where key is empty, which means all keys"));
    }
    let value = item.field("value")?;
    if operator == TolerationOperator::Exists && !value.str_or_empty()?.is_empty() {
        return Err(value.invalid("must be empty where operator is Exists"));
    }
    let effect = item.field("effect")?;
    Ok(Toleration {
        key: (!key.is_empty()).then(|| context.interner.key(key)),
        operator,
        value: context.interner.value(value.str_or_empty()?),
        effect: if effect.str_or_empty()?.is_empty() { None } else { Some(effect.name_of()?) },
        toleration_seconds: item.field("tolerationSeconds")?.int(i64::MIN, i64::MAX)?,
    })
}

/// A toleration for whatever value a taint has.
pub(crate) fn any_value(key: &str, effect: model::TaintEffect, context: &mut Context<'_>) -> Toleration {
    Toleration { key: Some(context.interner.key(key)), effect: Some(effect), ..Toleration::EVERYTHING }
}
