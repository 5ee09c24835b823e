//! Which field was meant by one that is not known.

/// Words of texts older than the API, and what became of them: KEP-5517 wrote `direct` for what 1.37 calls `mapping`.
const FORMER_NAMES: &[(&str, &str)] = &[
    ("direct", "mapping"),
    ("perPodReference", "perPod"),
    ("perContainerReference", "perContainer"),
    ("resourceSlices", "resourceSliceTemplates"),
];

/// A field of `nodeAllocatableResourceMappings`, whose entries 1.36 has in another shape than KEP-5517's text.
const FIELD_OF_MAPPINGS: &str = "allocationMultiplier";

/// What that text has in these entries, and where 1.37 has it.
const MOVED_FROM_MAPPINGS: &[(&str, &str)] = &[
    ("direct", "mapping of nodeAllocatableResources"),
    ("mapping", "mapping of nodeAllocatableResources"),
    ("overhead", "overhead of nodeAllocatableResources"),
];

/// The field that was probably meant by a name that none of an object's fields has.
pub fn did_you_mean<'k>(name: &str, fields: impl IntoIterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let now =
        |renamed: &[(&str, &'static str)]| renamed.iter().find(|(former, _)| *former == name).map(|(_, now)| *now);
    if fields.clone().into_iter().any(|field| field == FIELD_OF_MAPPINGS)
        && let Some(moved) = now(MOVED_FROM_MAPPINGS)
    {
        return Some(moved);
    }
    let renamed = now(FORMER_NAMES).filter(|now| fields.clone().into_iter().any(|field| field == *now));
    renamed.or_else(|| model::spelling::did_you_mean(name, fields))
}
