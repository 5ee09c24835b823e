//! Queries for images, and which of those found are kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::{NodeSelectorRequirement, Operator, labels};
use model::Timestamp;

use super::tag_filters;
use crate::node_class::decode::ImageTerm;
use crate::node_class::status::Ami;
use crate::service::ec2::{Filter, Image, Query};

/// Whose images a query is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageOwners {
    /// Anybody's that can be seen.
    Any,
    /// These: accounts, `self`, `amazon`, `aws-marketplace`.
    These(Vec<String>),
}

/// An image that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundImage {
    /// The image.
    pub image: Image,
    /// Which types it is for beside its architecture, as far as that is known: of the parameter that named it.
    pub requirements: Vec<NodeSelectorRequirement>,
}

/// The queries for terms, with whose images they are for. `by_parameter` has the ids that parameters of terms hold.
pub fn image_queries(terms: &[ImageTerm], by_parameter: &BTreeMap<String, String>) -> Vec<(Query, ImageOwners)> {
    let mut ids = Vec::new();
    let mut queries = Vec::new();
    for term in terms {
        match term {
            ImageTerm::Id(id) => ids.push(id.clone()),
            ImageTerm::Parameter(parameter) => ids.extend(by_parameter.get(parameter).cloned()),
            ImageTerm::Properties { name, owner, tags } => {
                let owners = match (owner, name) {
                    (Some(owner), _) => ImageOwners::These(vec![owner.clone()]),
                    // A name is no proof of who made the image.
                    (None, Some(_)) => ImageOwners::These(vec!["self".to_owned(), "amazon".to_owned()]),
                    (None, None) => ImageOwners::Any,
                };
                let filters = name.iter().map(|name| Filter::new("name", name)).chain(tag_filters(tags));
                queries.push((available(filters), owners));
            }
        }
    }
    if !ids.is_empty() {
        let by_id = Filter { name: "image-id".to_owned(), values: ids };
        queries.insert(0, (available([by_id]), ImageOwners::Any));
    }
    queries
}

fn available(filters: impl IntoIterator<Item = Filter>) -> Query {
    let state = Filter::new("state", "available");
    Query { ids: Vec::new(), filters: filters.into_iter().chain([state]).collect() }
}

/// The images to launch with, newest first: of those for equal types, one that nobody advises against before others,
/// then the newest, then the one whose name is greatest. Images for processors that there are no types of are left out.
pub fn select_images(found: Vec<FoundImage>, now: Timestamp) -> Vec<Ami> {
    let mut best: BTreeMap<String, (FoundImage, Vec<NodeSelectorRequirement>)> = BTreeMap::new();
    for found in found {
        let Some(architecture) = architecture(&found.image) else { continue };
        let mut requirements = found.requirements.clone();
        requirements.push(NodeSelectorRequirement {
            key: labels::ARCH.to_owned(),
            operator: Operator::In,
            values: vec![architecture.to_owned()],
        });
        // Karpenter's order, so that a status that it wrote stays as it is.
        requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
        let for_types = format!("{requirements:?}");
        let is_better = best.get(&for_types).is_none_or(|(other, _)| rank(&found, now) > rank(other, now));
        if is_better {
            best.insert(for_types, (found, requirements));
        }
    }
    let mut kept: Vec<_> = best.into_values().collect();
    kept.sort_by(|(a, _), (b, _)| {
        (Reverse(a.image.created_at), &a.image.id).cmp(&(Reverse(b.image.created_at), &b.image.id))
    });
    let ami = |(found, requirements): (FoundImage, Vec<NodeSelectorRequirement>)| Ami {
        deprecated: is_deprecated(&found.image, now).then_some(true),
        id: found.image.id,
        name: Some(found.image.name),
        requirements,
    };
    kept.into_iter().map(ami).collect()
}

fn rank(found: &FoundImage, now: Timestamp) -> impl Ord + '_ {
    (!is_deprecated(&found.image, now), found.image.created_at, &found.image.name, Reverse(&found.image.id))
}

fn is_deprecated(image: &Image, now: Timestamp) -> bool {
    image.deprecated_at.is_some_and(|at| at <= now)
}

fn architecture(image: &Image) -> Option<&'static str> {
    match image.architecture.as_str() {
        "x86_64" => Some(labels::ARCH_AMD64),
        "arm64" => Some(labels::ARCH_ARM64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::spec::Tags;

    fn at(day: u32) -> Timestamp {
        Timestamp::parse(&format!("2026-01-{day:02}T00:00:00Z")).unwrap()
    }

    fn image(id: &str, architecture: &str, created: u32, deprecated: Option<u32>) -> FoundImage {
        let image = Image {
            id: id.to_owned(),
            name: format!("name-of-{id}"),
            architecture: architecture.to_owned(),
            created_at: at(created),
            deprecated_at: deprecated.map(at),
        };
        FoundImage { image, requirements: Vec::new() }
    }

    fn selected(found: &[FoundImage]) -> Vec<(String, Option<bool>)> {
        select_images(found.to_vec(), at(15)).into_iter().map(|ami| (ami.id, ami.deprecated)).collect()
    }

    #[test]
    fn of_images_for_equal_types_the_newest_that_is_not_deprecated_is_kept() {
        let found = [
            image("ami-1", "x86_64", 1, None),
            image("ami-2", "x86_64", 2, None),
            image("ami-3", "x86_64", 3, Some(14)),
            image("ami-4", "arm64", 4, Some(16)),
            image("ami-5", "i386", 5, None),
        ];
        let kept = [("ami-4".to_owned(), None), ("ami-2".to_owned(), None)];
        assert_eq!(selected(&found), kept);
        let mut back = found.to_vec();
        back.reverse();
        assert_eq!(selected(&back), kept);
        assert_eq!(selected(&found[2..3]), [("ami-3".to_owned(), Some(true))]);
    }

    #[test]
    fn images_for_different_types_are_all_kept() {
        let gpu = |id: &str| FoundImage {
            requirements: vec![NodeSelectorRequirement {
                key: crate::labels::INSTANCE_GPU_COUNT.to_owned(),
                operator: Operator::Exists,
                values: Vec::new(),
            }],
            ..image(id, "x86_64", 1, None)
        };
        let amis = select_images(vec![gpu("ami-2"), image("ami-1", "x86_64", 1, None)], at(15));
        let ids: Vec<_> = amis.iter().map(|ami| ami.id.as_str()).collect();
        assert_eq!(ids, ["ami-1", "ami-2"]);
        let keys: Vec<_> = amis[1].requirements.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, [labels::ARCH, crate::labels::INSTANCE_GPU_COUNT]);
    }

    #[test]
    fn a_name_without_an_owner_is_looked_for_among_ones_own_and_amazons() {
        let properties = |name: Option<&str>, owner: Option<&str>, tags: &[(&str, &str)]| ImageTerm::Properties {
            name: name.map(str::to_owned),
            owner: owner.map(str::to_owned),
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Tags>(),
        };
        let terms = [
            properties(Some("golden-*"), None, &[]),
            properties(None, None, &[("team", "*")]),
            properties(Some("n"), Some("123456789012"), &[]),
            ImageTerm::Id("ami-1".to_owned()),
            ImageTerm::Parameter("/known".to_owned()),
            ImageTerm::Parameter("/unknown".to_owned()),
        ];
        let queries = image_queries(&terms, &[("/known".to_owned(), "ami-2".to_owned())].into());
        let text: Vec<_> = queries
            .iter()
            .map(|(query, owners)| {
                let filters: Vec<_> =
                    query.filters.iter().map(|it| format!("{}={}", it.name, it.values.join("|"))).collect();
                format!("{} {owners:?}", filters.join(" "))
            })
            .collect();
        assert_eq!(
            text,
            [
                "image-id=ami-1|ami-2 state=available Any",
                "name=golden-* state=available These([\"self\", \"amazon\"])",
                "tag-key=team state=available Any",
                "name=n state=available These([\"123456789012\"])",
            ]
        );
    }
}
