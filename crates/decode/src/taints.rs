//! Taints of NodePools and NodeClaims.

use k8s_openapi::api::core::v1 as core;
use model::Taint;

use crate::context::Context;
use crate::error::{Problem, Reason};

/// Reads a list of taints; `field` is where it stands.
pub fn taints(list: &[core::Taint], field: &str, context: &mut Context<'_>) -> Result<Vec<Taint>, Problem> {
    let taint = |(index, taint): (usize, &core::Taint)| {
        let problem = |part: &str, reason| Problem { field: format!("{field}[{index}].{part}"), reason };
        if taint.key.is_empty() {
            return Err(problem("key", Reason::Missing));
        }
        Ok(Taint {
            key: context.interner.key(&taint.key),
            value: context.interner.value(taint.value.as_deref().unwrap_or_default()),
            effect: taint
                .effect
                .parse()
                .map_err(|unknown: model::taint::UnknownName| problem("effect", unknown.into()))?,
        })
    };
    list.iter().enumerate().map(taint).collect()
}
