//! `spec.tolerations`.
//!
//! Tolerations of a single held machine, which the hand-over gives to single pods, are told apart: no plan depends on
//! them, and pods that have one are still of the class of those that have not.

use api::taints;
use model::{Toleration, TolerationOperator, Uid};

use crate::context::Context;
use crate::error::Problem;
use crate::field::Field;

pub(super) fn decode(list: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Vec<Toleration>, Problem> {
    let mut tolerations = Vec::new();
    for item in list.items()? {
        if held_machine(&item)?.is_none() {
            tolerations.push(decode_one(&item, context)?);
        }
    }
    Ok(tolerations)
}

/// The held machines that the pod may enter.
pub(super) fn held_machines(list: &Field<'_, '_>) -> Result<Vec<Uid>, Problem> {
    let mut machines = Vec::new();
    for item in list.items()? {
        machines.extend(held_machine(&item)?);
    }
    Ok(machines)
}

/// The machine, if that toleration is for one that is held.
fn held_machine(item: &Field<'_, '_>) -> Result<Option<Uid>, Problem> {
    let value = item.field("value")?.str_or_empty()?;
    let ours = item.field("key")?.str_or_empty()? == taints::HELD
        && item.field("operator")?.name_of::<TolerationOperator>()? == TolerationOperator::Equal
        && item.field("effect")?.str_or_empty()? == taints::NO_SCHEDULE;
    Ok((ours && !value.is_empty()).then(|| value.into()))
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
