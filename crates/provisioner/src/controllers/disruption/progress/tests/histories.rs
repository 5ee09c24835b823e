//! Random histories: commands begin, two leaders begin with one NodeClaim, processes die between any two writes,
//! replacements come, are late or get lost, pods come, NodeClaims and NodePools are deleted by hand, clocks jump. The
//! world is written to as `writes` has it.

use std::collections::BTreeMap;

use seeded_random::Random;

use super::super::super::writes::{self, Write};
use super::*;

/// A NodeClaim with its Node.
#[derive(Debug, Clone, Default)]
struct Machine {
    note: Option<Note>,
    is_marked: bool,
    is_tainted: bool,
    is_deleting: bool,
    is_ready: bool,
    pods: usize,
    is_held: bool,
    is_replacement: bool,
}

#[derive(Debug, Default)]
struct World {
    machines: BTreeMap<NodeClaimName, Machine>,
    now: i64,
    launched: usize,
    is_pool_lost: bool,
    /// How often a note was not written because there was one of another leader.
    refused: usize,
}

impl World {
    /// As `view` reads it.
    fn shown(&self) -> Vec<Shown> {
        let mut notes: BTreeMap<String, Note> = BTreeMap::new();
        for note in self.machines.values().filter_map(|machine| machine.note.as_ref()) {
            notes.insert(note.id.clone(), note.clone());
        }
        notes.into_values().map(|note| self.show(note)).collect()
    }

    fn show(&self, note: Note) -> Shown {
        let named = note.going.iter().filter_map(|name| Some((name, self.machines.get(name)?)));
        let going = named.map(|(name, machine)| Going {
            name: name.clone(),
            has_note: machine.note.as_ref() == Some(&note),
            is_deleting: machine.is_deleting,
            is_marked: machine.is_marked,
            is_tainted: machine.is_tainted,
            pods: machine.pods,
            held_by: machine.is_held.then(|| NamespacedName::new("n", "p")),
        });
        let members = self.machines.iter().filter(|(_, machine)| machine.note.as_ref() == Some(&note));
        let others = members.filter(|(name, _)| !note.going.contains(*name));
        let replacements = others.map(|(name, machine)| Replacement {
            name: name.clone(),
            is_deleting: machine.is_deleting,
            readiness: if machine.is_ready { Readiness::Ready } else { Readiness::Coming },
            is_used: machine.pods > 0,
        });
        let lost_pool = self.is_pool_lost.then(|| "general".into());
        Shown { going: going.collect(), replacements: replacements.collect(), lost_pool, note }
    }

    fn write(&mut self, note: &Note, write: &Write) {
        let launched = self.launched;
        if let Write::Launch(_) = write {
            self.launched += 1;
            let machine = Machine { note: Some(note.clone()), is_replacement: true, ..Machine::default() };
            self.machines.insert(format!("r{launched}").as_str().into(), machine);
            return;
        }
        let (Write::Note(name)
        | Write::Mark(name)
        | Write::Taint(name)
        | Write::Delete(name)
        | Write::Untaint(name)
        | Write::Unmark(name)
        | Write::Forget(name)
        | Write::Discard(name)) = write
        else {
            return;
        };
        let Some(machine) = self.machines.get_mut(name) else { return };
        match write {
            Write::Note(_) => machine.note = Some(note.clone()),
            Write::Mark(_) => machine.is_marked = true,
            Write::Taint(_) => machine.is_tainted = true,
            Write::Untaint(_) => machine.is_tainted = false,
            Write::Unmark(_) => machine.is_marked = false,
            // What has another by now is somebody else's.
            Write::Forget(_) if machine.note.as_ref() != Some(note) => {}
            Write::Forget(_) => machine.note = None,
            Write::Delete(_) | Write::Discard(_) => machine.is_deleting = true,
            Write::Launch(_) => {}
        }
    }

    /// Writes up to where the process dies, if it does, or the API server refuses: no note takes another's place.
    fn carry_out(&mut self, note: &Note, writes: &[Write], dies_before: usize) {
        for write in writes.iter().take(dies_before) {
            if let Write::Note(name) = write
                && self.machines.get(name).is_some_and(|machine| machine.note.is_some())
            {
                self.refused += 1;
                return;
            }
            if let Write::Delete(_) = write {
                let shown = self.show(note.clone());
                let ready = shown.replacements.iter().filter(|it| it.readiness == Readiness::Ready).count();
                assert!(ready >= note.replacements, "{write:?} with {ready} ready: {shown:#?}");
                // Closed to pods, so that none that nobody looked at is there.
                let mut staying = shown.going.iter().filter(|going| !going.is_deleting);
                assert!(staying.all(|it| it.has_note && it.is_marked && it.is_tainted), "{write:?}: {shown:#?}");
            }
            self.write(note, write);
        }
    }

    fn free(&self) -> Vec<NodeClaimName> {
        let is_free = |machine: &&Machine| machine.note.is_none() && !machine.is_deleting;
        self.machines.iter().filter(|(_, machine)| is_free(machine)).map(|(name, _)| name.clone()).collect()
    }

    /// A command for some of those that take part in none.
    fn command(&self, random: &mut Random, id: &str) -> Option<Note> {
        let mut going = self.free();
        while going.len() > 1 + random.below(3) as usize {
            going.remove(random.below(going.len() as u64) as usize);
        }
        if going.is_empty() {
            return None;
        }
        let is_empty = going.iter().all(|name| self.machines[name].pods == 0);
        Some(Note {
            id: id.to_owned(),
            reason: if is_empty { Reason::Empty } else { Reason::Drifted },
            going: going.into_iter().collect(),
            replacements: if is_empty { 0 } else { random.below(3) as usize },
            deadline: Timestamp::from_seconds(self.now + 600),
            drain_bounds: BTreeMap::new(),
        })
    }

    fn begin(&mut self, random: &mut Random, note: &Note) {
        let writes = [writes::begin(note), writes::launch(note)].concat();
        let dies_before = random.below(2 * writes.len() as u64 + 1) as usize;
        self.carry_out(note, &writes, dies_before);
    }

    /// A leader looks once, and may die while it does something.
    fn advance(&mut self, random: &mut Random, may_die: bool) {
        for shown in self.shown() {
            let writes = match next(&shown, LONGEST, Timestamp::from_seconds(self.now)) {
                Step::Nothing | Step::Wait => continue,
                Step::Finish => writes::finish(&shown),
                Step::Release => writes::release(&shown),
                Step::RollBack(_) => writes::roll_back(&shown),
            };
            let dies = may_die && random.below(3) == 0;
            let dies_before = if dies { random.below(writes.len() as u64 + 1) as usize } else { writes.len() };
            self.carry_out(&shown.note, &writes, dies_before);
            if dies {
                return;
            }
        }
    }

    fn happens(&mut self, random: &mut Random) {
        let names: Vec<NodeClaimName> = self.machines.keys().cloned().collect();
        let Some(name) = names.get(random.below(names.len().max(1) as u64) as usize) else { return };
        let Some(machine) = self.machines.get_mut(name) else { return };
        match random.below(12) {
            0..5 => machine.is_ready = true,
            5 => machine.pods += usize::from(!machine.is_tainted),
            6 => machine.pods = 0,
            7 => machine.is_held = !machine.is_held,
            8 => machine.is_deleting = true,
            9 if machine.is_deleting || machine.is_replacement => drop(self.machines.remove(name)),
            10 => self.now += i64::from(random.below(700)),
            _ if random.below(20) == 0 => self.now -= 10_000,
            _ if random.below(20) == 0 => self.now += 1_000_000,
            _ if random.below(40) == 0 => self.is_pool_lost = true,
            _ => {}
        }
    }
}

#[test]
fn whatever_happens_nothing_goes_before_its_replacements_and_in_the_end_nothing_is_left_over() {
    let (mut finished, mut rolled_back, mut refused) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut world = World { now: NOW, ..World::default() };
        for index in 0..1 + random.below(6) {
            let machine = Machine { is_ready: true, pods: random.below(3) as usize, ..Machine::default() };
            world.machines.insert(format!("m{index}").as_str().into(), machine);
        }
        for id in 0..10 + random.below(30) {
            match random.below(6) {
                0 => {
                    // Now and then the next leader has not seen yet what the last one wrote before it died.
                    let leaders = if random.one_in(3) { &["last", "next"][..] } else { &["only"] };
                    let notes: Vec<Note> = leaders
                        .iter()
                        .filter_map(|leader| world.command(&mut random, &format!("{id}-{leader}")))
                        .collect();
                    notes.iter().for_each(|note| world.begin(&mut random, note));
                }
                1..4 => world.advance(&mut random, true),
                _ => world.happens(&mut random),
            }
        }
        // Now nobody dies, and time goes by.
        let was_replacement: Vec<NodeClaimName> = world
            .machines
            .iter()
            .filter(|(_, machine)| machine.is_replacement && machine.note.is_some() && !machine.is_deleting)
            .map(|(name, _)| name.clone())
            .collect();
        for _ in 0..4 {
            world.advance(&mut random, false);
            world.now += 4_000;
        }
        for (name, machine) in world.machines.iter().filter(|(_, machine)| !machine.is_deleting) {
            assert!(machine.note.is_none(), "seed {seed}: {name} has a note: {machine:?}");
            assert!(!machine.is_tainted && !machine.is_marked, "seed {seed}: {name} is left over: {machine:?}");
        }
        refused += world.refused;
        for name in was_replacement {
            let Some(machine) = world.machines.get(&name) else { continue };
            if machine.is_deleting {
                rolled_back += 1;
            } else {
                finished += 1;
            }
        }
    }
    assert!(finished > 50 && rolled_back > 50, "{finished} replacements stayed, {rolled_back} went");
    assert!(refused > 100, "{refused} notes refused: leaders hardly ever meet");
}
