//! Queries for subnets, security groups, capacity reservations and the placement group.

use super::tag_filters;
use crate::node_class::decode::{CapacityReservationTerm, PlacementGroupTerm, SecurityGroupTerm, SubnetTerm};
use crate::service::ec2::{Filter, Query};

/// The queries for subnets; what any of them finds is selected.
pub fn subnets(terms: &[SubnetTerm]) -> Vec<Query> {
    let mut by_id = Vec::new();
    let mut queries = Vec::new();
    for term in terms {
        match term {
            SubnetTerm::Id(id) => by_id.push(id.clone()),
            SubnetTerm::Tags(tags) => queries.push(Query { ids: Vec::new(), filters: tag_filters(tags).collect() }),
        }
    }
    with_values("subnet-id", by_id, queries)
}

/// The queries for security groups; what any of them finds is selected.
pub fn security_groups(terms: &[SecurityGroupTerm]) -> Vec<Query> {
    let (mut by_id, mut by_name) = (Vec::new(), Vec::new());
    let mut queries = Vec::new();
    for term in terms {
        match term {
            SecurityGroupTerm::Id(id) => by_id.push(id.clone()),
            SecurityGroupTerm::Name(name) => by_name.push(name.clone()),
            SecurityGroupTerm::Tags(tags) => {
                queries.push(Query { ids: Vec::new(), filters: tag_filters(tags).collect() });
            }
        }
    }
    with_values("group-id", by_id, with_values("group-name", by_name, queries))
}

/// The queries for capacity reservations that can be used; what any of them finds is selected.
pub fn capacity_reservations(terms: &[CapacityReservationTerm]) -> Vec<Query> {
    let active = || Filter::new("state", "active");
    let mut ids = Vec::new();
    let mut queries = Vec::new();
    for term in terms {
        match term {
            CapacityReservationTerm::Id(id) => ids.push(id.clone()),
            CapacityReservationTerm::Properties { tags, owner_id, match_criteria } => {
                let mut filters = vec![active()];
                filters.extend(owner_id.iter().map(|owner| Filter::new("owner-id", owner)));
                filters.extend(match_criteria.iter().map(|it| Filter::new("instance-match-criteria", it.as_str())));
                filters.extend(tag_filters(tags));
                queries.push(Query { ids: Vec::new(), filters });
            }
        }
    }
    if !ids.is_empty() {
        queries.insert(0, Query { ids, filters: vec![active()] });
    }
    queries
}

/// The query for the placement group.
pub fn placement_group(term: &PlacementGroupTerm) -> Query {
    let available = Filter::new("state", "available");
    match term {
        PlacementGroupTerm::Id(id) => Query { ids: vec![id.clone()], filters: vec![available] },
        PlacementGroupTerm::Name(name) => {
            Query { ids: Vec::new(), filters: vec![Filter::new("group-name", name), available] }
        }
    }
}

/// One query for all of the values, before others.
fn with_values(name: &str, values: Vec<String>, mut others: Vec<Query>) -> Vec<Query> {
    if !values.is_empty() {
        others.insert(0, Query { ids: Vec::new(), filters: vec![Filter { name: name.to_owned(), values }] });
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::spec::{InstanceMatchCriteria, Tags};

    fn tags(entries: &[(&str, &str)]) -> Tags {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Queries in short: ids, then filters.
    fn text(queries: &[Query]) -> Vec<String> {
        let filter = |filter: &Filter| format!("{}={}", filter.name, filter.values.join("|"));
        let query = |query: &Query| {
            let filters: Vec<_> = query.filters.iter().map(filter).collect();
            format!("{}[{}]", query.ids.join(","), filters.join(" "))
        };
        queries.iter().map(query).collect()
    }

    #[test]
    fn all_ids_of_subnets_are_one_query_and_each_term_of_tags_is_one() {
        let terms = [
            SubnetTerm::Tags(tags(&[("a", "1"), ("b", "*"), ("c", "*")])),
            SubnetTerm::Id("subnet-1".to_owned()),
            SubnetTerm::Id("subnet-2".to_owned()),
        ];
        assert_eq!(text(&subnets(&terms)), ["[subnet-id=subnet-1|subnet-2]", "[tag:a=1 tag-key=b tag-key=c]"]);
    }

    #[test]
    fn security_groups_are_found_by_id_name_and_tags() {
        let terms = [
            SecurityGroupTerm::Name("n".to_owned()),
            SecurityGroupTerm::Tags(tags(&[("a", "1")])),
            SecurityGroupTerm::Id("sg-1".to_owned()),
            SecurityGroupTerm::Name("m".to_owned()),
        ];
        assert_eq!(text(&security_groups(&terms)), ["[group-id=sg-1]", "[group-name=n|m]", "[tag:a=1]"]);
    }

    #[test]
    fn only_active_reservations_and_available_groups_are_asked_for() {
        let terms = [
            CapacityReservationTerm::Properties {
                tags: tags(&[("a", "*")]),
                owner_id: Some("123456789012".to_owned()),
                match_criteria: Some(InstanceMatchCriteria::Targeted),
            },
            CapacityReservationTerm::Id("cr-1".to_owned()),
        ];
        assert_eq!(
            text(&capacity_reservations(&terms)),
            ["cr-1[state=active]", "[state=active owner-id=123456789012 instance-match-criteria=targeted tag-key=a]"]
        );
        let groups = [PlacementGroupTerm::Id("pg-1".to_owned()), PlacementGroupTerm::Name("n".to_owned())];
        assert_eq!(
            text(&groups.map(|term| placement_group(&term))),
            ["pg-1[state=available]", "[group-name=n state=available]"]
        );
    }
}
