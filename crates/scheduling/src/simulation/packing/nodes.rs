//! Copies of a class on nodes that are there.

use std::borrow::Cow;

use model::{Answer, ResourceVec};

use super::Packing;
use super::state::{Assignment, Target, Undo};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::packing::devices::{DeviceRequest, Spot, Way};
use crate::simulation::topology::Involvement;
use crate::snapshot::NodeId;

impl Packing<'_> {
    /// Copies of the class that the node has room for, at most `wanted`.
    pub(crate) fn copies_on_node(&self, node: NodeId, class: ClassId, wanted: u32) -> Answer<u32> {
        let problem = self.problem;
        let copies = self.copies_beside_devices(node, class, wanted);
        let pods = &problem.classes[class];
        if copies == 0 || pods.devices.is_none() {
            return Answer::finished(copies);
        }
        let variant = problem.variant_on(class, node);
        let room = self.room_beside_volumes(node, class);
        let request = DeviceRequest { spot: Spot::Node(node), class, variant, copies };
        let copies_by = |way: &Way| {
            let mut each = pods.requests(variant).clone();
            each.saturating_add_assign(&way.extra_on_node());
            each.times_in(&room, way.copies.min(copies))
        };
        self.ways(request).map(|ways| match ways {
            Some(ways) => ways.ways.iter().map(copies_by).max().unwrap_or(0),
            None => copies,
        })
    }

    /// How many copies a node would take if there were devices for all of them.
    pub(crate) fn copies_beside_devices(&self, node: NodeId, class: ClassId, wanted: u32) -> u32 {
        let problem = self.problem;
        if !problem.node_accepts(class, node) {
            return 0;
        }
        let pods = &problem.classes[class];
        let variant = if pods.devices.is_some() { problem.variant_on(class, node) } else { 0 };
        if pods.devices.is_some() && !problem.can_be_bound(class, variant) {
            return 0;
        }
        let room = self.room_beside_volumes(node, class);
        let copies = times_in(pods.requests(variant), &room, wanted);
        if copies == 0 || pods.involved.is_empty() {
            return copies;
        }
        let place = |_: usize, mine: &Involvement| problem.topology.place_of_node(mine.group, node);
        self.coupled_room(pods, place, copies)
    }

    /// What a node has free once the volumes are attached that the class shares with others; nothing if they cannot be.
    fn room_beside_volumes(&self, node: NodeId, class: ClassId) -> Cow<'_, ResourceVec> {
        let problem = self.problem;
        let room = Cow::Borrowed(&self.state.room[node]);
        if problem.shared_volumes.of(class).is_empty() {
            return room;
        }
        let extra = problem.shared_volumes.extra(class, &self.state.attached[node]);
        if extra.iter().any(|(resource, amount)| room.get(*resource) < *amount) {
            return Cow::Owned(ResourceVec::default());
        }
        let mut room = room.into_owned();
        for (resource, amount) in extra {
            room.set(resource, room.get(resource) - amount);
        }
        Cow::Owned(room)
    }

    /// Requests of a copy on a node, with the volumes that would have to be attached for it.
    pub(crate) fn requests_on(&self, node: NodeId, class: ClassId) -> Cow<'_, ResourceVec> {
        let problem = self.problem;
        let requests = problem.classes[class].requests(problem.variant_on(class, node));
        let attached = self.state.attached.try_get(node).map_or(&[][..], |attached| attached);
        problem.shared_volumes.with_extra(requests, class, attached)
    }

    /// The first node from a position on in the order of trying that has room for a copy, and its position. Where
    /// devices are wanted, what a copy takes depends on the node, and all nodes are looked at.
    pub(crate) fn next_node(&self, from: usize, class: ClassId) -> Option<(usize, NodeId)> {
        let problem = self.problem;
        let pods = &problem.classes[class];
        let position = if pods.devices.is_some() { from } else { self.state.rooms.next(from, &pods.shape.requests)? };
        Some((position, *problem.node_order.get(position)?))
    }

    pub(super) fn note_room(&mut self, node: NodeId) {
        if let Some(position) = self.problem.position_of(node) {
            self.state.rooms.set(position, &self.state.room[node]);
        }
    }

    /// Puts copies onto a node; the caller has asked [`Self::copies_on_node`].
    pub(crate) fn place_on_node(&mut self, node: NodeId, class: ClassId, copies: u32) {
        let problem = self.problem;
        let before = self.state.room[node].clone();
        let variant = if problem.classes[class].devices.is_some() { problem.variant_on(class, node) } else { 0 };
        let requests = problem.classes[class].requests(variant);
        for (resource, amount) in requests.iter() {
            let left = self.state.room[node].get(resource).saturating_sub(amount.saturating_mul(i64::from(copies)));
            self.state.room[node].set(resource, left);
        }
        if !problem.shared_volumes.of(class).is_empty() {
            for (resource, amount) in problem.shared_volumes.extra(class, &self.state.attached[node]) {
                let left = self.state.room[node].get(resource).saturating_sub(amount);
                self.state.room[node].set(resource, left);
            }
            let before = self.state.attached[node].clone();
            problem.shared_volumes.attach(class, &mut self.state.attached[node]);
            self.state.journal.push(|| Undo::Attached(node, before));
        }
        if let Some(ways) = self.ways(DeviceRequest { spot: Spot::Node(node), class, variant, copies }).so_far()
            && let Some(devices) = &mut self.state.devices
        {
            let (extra, before) = devices.take_on_node(problem, node, (class, variant), &ways, copies);
            self.state.room[node].saturating_sub_assign(&extra);
            self.state.journal.push(|| Undo::Devices(before));
        }
        self.state.journal.push(|| Undo::Room(node, before));
        self.note_room(node);
        self.count(class, |_, mine| problem.topology.place_of_node(mine.group, node), copies);
        self.assign(Assignment { class, target: Target::Node(node), alternative: 0, copies });
    }

    /// Takes copies of a class from a node that nothing couples and that has no volumes or devices.
    pub(crate) fn take_from_node(&mut self, node: NodeId, class: ClassId, copies: u32) {
        let before = self.state.room[node].clone();
        for (resource, amount) in self.problem.classes[class].requests(0).iter() {
            let free = self.state.room[node].get(resource).saturating_add(amount.saturating_mul(i64::from(copies)));
            self.state.room[node].set(resource, free);
        }
        self.state.journal.push(|| Undo::Room(node, before));
        self.note_room(node);
        self.unassign(class, Target::Node(node), 0, copies);
    }
}

/// How often `requests` fits, at most `wanted`; most of the time not at all.
fn times_in(requests: &ResourceVec, room: &ResourceVec, wanted: u32) -> u32 {
    match wanted {
        _ if !requests.fits_in(room) => 0,
        0 | 1 => wanted,
        _ => requests.times_in(room, wanted),
    }
}
