//! What machines have to offer beside daemons, and room that was observed.

use std::sync::Arc;

use model::{Id as _, ResourceId};

use super::fixture::{Fixture, gib};
use crate::{
    catalogue::TypeId,
    provisioning::{Obstacle, bare_room, obstacle, plan},
    snapshot::{NodeId, PodId, PoolId},
};

#[test]
fn what_a_node_could_hold_does_not_depend_on_the_pods_that_run_there_now() {
    let mut f = Fixture::new();
    f.pool("default");
    f.daemon_set("agent", 300, 0, &[]);
    f.node("n").allocatable(2000, gib(4)).label("zone", "a");
    f.pod("static").requests(200, 0).runs();
    f.pod("web").requests(1500, 0).runs();
    f.pod("fits").requests(1500, 0);
    f.pod("large").requests(1600, 0);
    f.pod("elsewhere").requests(100, 0).select("zone", "b");
    let mut snapshot = f.snapshot();
    let node = NodeId::from_index(0);
    let mut pods = snapshot.nodes[node].pods.to_vec();
    Arc::make_mut(&mut pods[0]).is_mirror = true;
    Arc::make_mut(&mut snapshot.nodes[node]).pods = pods.into();
    assert_eq!(bare_room(node, &snapshot).get(ResourceId::CPU), 1500);
    let keeps_out = |name: &str| {
        let pod = snapshot.pods.iter().find(|pending| &*pending.pod.name.name == name).unwrap();
        obstacle(node, &pod.pod.shape, &snapshot)
    };
    let expected = [None, Some(Obstacle::Room), Some(Obstacle::Labels)];
    assert_eq!([keeps_out("fits"), keeps_out("large"), keeps_out("elsewhere")], expected);
    let mut f = Fixture::new();
    f.pool("default");
    f.node("n").allocatable(2000, gib(4)).taint("team", "x");
    f.pod("p").requests(100, 0);
    let snapshot = f.snapshot();
    let obstacle = obstacle(node, &snapshot.pods[PodId::from_index(0)].pod.shape, &snapshot);
    assert_eq!(obstacle, Some(Obstacle::Taint(snapshot.nodes[node].taints[0])));
}

#[test]
fn room_that_was_observed_counts_in_place_of_the_computed_one() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("tall", 4, 8).offering("a", "on-demand", 20);
    f.pool("default");
    f.pod("p").requests(1500, gib(1));
    let mut snapshot = f.snapshot();
    let launched = |snapshot: &crate::Snapshot| {
        let plan = plan(snapshot);
        let types = plan.machines.iter().flat_map(|machine| machine.instance_types.clone());
        let catalogue = &snapshot.node_pools[PoolId::from_index(0)].catalogue;
        types.map(|id| catalogue.types[id].name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(launched(&snapshot), ["small", "tall"]);
    let small = TypeId::from_index(0);
    let pool = PoolId::from_index(0);
    snapshot.node_pools[pool].observed_room = vec![(small, vec![(ResourceId::CPU, 5000)])];
    assert_eq!(launched(&snapshot), ["small", "tall"], "more than was computed changes nothing");
    snapshot.node_pools[pool].observed_room = vec![(small, vec![(ResourceId::CPU, 1400)])];
    assert_eq!(launched(&snapshot), ["tall"]);
    snapshot.node_pools[pool].observed_room = vec![(small, vec![(ResourceId::CPU, 0)])];
    assert_eq!(launched(&snapshot), ["tall"], "nothing is less than something");
}
