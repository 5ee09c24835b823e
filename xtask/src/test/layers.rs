//! The direction of use: crates and the rooms inside them use what the table of layers lets them use, and nothing else.
//!
//! A room is one module or several. The check reads imports and paths, not types: a method on a value that came from
//! elsewhere passes it. A crate's root lists its modules, so what it names and what names it does not count.

mod cycles;
mod modules;
mod page;
mod sources;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};

use sources::Sources;
use table::{CRATES, EXCEPTIONS, Exception, MOST_EXCEPTIONS, PROVIDERS, Provider, ROOMS, Room, TOGETHER, Together};

/// Fewer arrows than this between rooms, and they were not found rather than removed.
const LEAST: usize = 1000;

pub(crate) fn check() -> Result<()> {
    let repository = go_programs::repository();
    let arrows = arrows(&Sources::read(repository)?);
    let table = Table { crates: CRATES, rooms: ROOMS, together: TOGETHER, exceptions: EXCEPTIONS };
    let mut faults = table.faults(&arrows);
    faults.extend(page::missing_paths(repository)?);
    EXCEPTIONS.iter().for_each(|exception| println!("exception: {}", exception.reason));
    faults.iter().for_each(|fault| println!("{fault}"));
    println!("{} passed, {} failed", arrows.len(), faults.len());
    if !faults.is_empty() {
        bail!("{} arrows between rooms are not as they should be", faults.len());
    }
    if arrows.len() < LEAST {
        bail!("only {} arrows between rooms were found", arrows.len());
    }
    Ok(())
}

/// A crate and a module in it, as `crate::a::b`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct End(Vec<String>);

impl End {
    fn new(name: &str, module: &[String]) -> Self {
        Self([&[name.to_owned()], module].concat())
    }

    fn name(&self) -> &str {
        &self.0[0]
    }

    fn module(&self) -> &[String] {
        &self.0[1..]
    }

    /// Whether it is what `path` names, or below it.
    fn is_in(&self, path: &str) -> bool {
        starts_with(&self.0, path)
    }
}

/// One module names another one, in a line.
#[derive(Clone, Debug)]
struct Arrow {
    from: End,
    to: End,
    /// The path as it is written.
    written: String,
    file: PathBuf,
    line: usize,
}

/// All arrows between modules, but for those that begin or end at the root of their own crate.
fn arrows(sources: &Sources) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for (name, of_crate) in &sources.crates {
        for place in of_crate.values() {
            for reference in &place.module.references {
                let Some((to, target)) = sources.resolve(name, &place.module, &reference.path) else { continue };
                let (from, to) = (End::new(name, &place.module.path), End::new(to, &target.path));
                let written = reference.path.join("::");
                if from.name() != to.name() || is_between(&from, &to) {
                    arrows.push(Arrow { from, to, written, file: place.file.clone(), line: reference.line });
                }
            }
        }
    }
    arrows
}

/// Whether an arrow within a crate goes from one module below the root to another.
fn is_between(from: &End, to: &End) -> bool {
    !from.module().is_empty() && !to.module().is_empty() && from != to
}

/// The provider that an arrow names: one that the path spells, or whose crate it leads to.
fn provider_named(arrow: &Arrow) -> Option<&'static Provider> {
    let written = arrow.written.to_lowercase();
    PROVIDERS.iter().find(|provider| written.contains(provider.word) || arrow.to.name() == provider.own)
}

struct Table<'a> {
    crates: &'a [(&'a str, &'a [&'a [&'a str]])],
    rooms: &'a [(&'a str, &'a [Room])],
    together: &'a [Together],
    exceptions: &'a [Exception],
}

impl Table<'_> {
    fn faults(&self, arrows: &[Arrow]) -> Vec<String> {
        let mut excepted = BTreeSet::new();
        let mut kept = Vec::new();
        let mut faults = Vec::new();
        for arrow in arrows {
            let Err(fault) = self.judge(arrow) else {
                kept.push(arrow);
                continue;
            };
            match self.exception(arrow) {
                Some(exception) => drop(excepted.insert(exception)),
                None => faults.push(format!("{}:{}: {fault}", arrow.file.display(), arrow.line)),
            }
        }
        // A line often imports several names from one place.
        faults.dedup();
        let listed = self.exceptions.iter().flat_map(|exception| exception.arrows);
        let stale = listed.filter(|arrow| !excepted.contains(*arrow));
        faults
            .extend(stale.map(|(from, to)| format!("{from} no longer uses {to}: take the exception out of the table")));
        faults.extend(self.faults_of_cycles(&kept));
        if self.exceptions.len() > MOST_EXCEPTIONS {
            faults.push(format!("the table has {} exceptions, {MOST_EXCEPTIONS} are allowed", self.exceptions.len()));
        }
        faults
    }

    /// What is wrong with an arrow, and what to do.
    fn judge(&self, arrow: &Arrow) -> Result<(), String> {
        let Arrow { from, to, .. } = arrow;
        if let Some(provider) = provider_named(arrow)
            && from.name() != provider.own
            && !provider.helpers.contains(&from.name())
        {
            if from.is_in(provider.table) {
                return Ok(());
            }
            return Err(format!(
                "{} names a provider: ask what `cloudprovider` says of it, or do it in {}",
                from.0.join("::"),
                provider.table
            ));
        }
        if from.name() != to.name() {
            return self.judge_crates(from, to);
        }
        let (Some(here), Some(there)) = (self.room(from), self.room(to)) else {
            return Err(format!("a module of {} belongs to no room: name it in the table of layers", from.name()));
        };
        let Some(room) = self.row(from) else { return Ok(()) };
        let name = there.strip_prefix(from.name()).and_then(|name| name.strip_prefix("::")).unwrap_or_default();
        let allows = |used: &&str| *used == name || used.strip_suffix('*').is_some_and(|start| name.starts_with(start));
        if here == there || room.uses.iter().any(allows) {
            return Ok(());
        }
        let advice = if from.module()[0] == "controllers" && to.module()[0] == "controllers" {
            "what two controllers need goes to `world`"
        } else {
            "move what both need to a room that both may use; if the arrow is right, ARCHITECTURE.md and the table of layers change with it"
        };
        Err(format!("{here} may not use {there}: {advice}"))
    }

    fn judge_crates(&self, from: &End, to: &End) -> Result<(), String> {
        let Some((_, used)) = self.crates.iter().find(|(name, _)| *name == from.name()) else {
            return Err(format!("crate {} is not in the table of layers", from.name()));
        };
        if used.iter().copied().flatten().any(|used| to.is_in(used)) {
            return Ok(());
        }
        let (from, to) = (from.name(), to.0.join("::"));
        Err(format!(
            "{from} may not use {to}: if the arrow is right, RFC 0006, ARCHITECTURE.md and the table of layers change with it"
        ))
    }

    /// The exception that allows an arrow.
    fn exception(&self, arrow: &Arrow) -> Option<(&'static str, &'static str)> {
        let provider = provider_named(arrow).map(|provider| provider.word);
        let is_at = |end: &End, name: &str| end.is_in(name) || self.room(end).is_some_and(|room| room == name);
        let listed = self.exceptions.iter().flat_map(|exception| exception.arrows);
        listed.copied().find(|(from, to)| {
            is_at(&arrow.from, from) && (provider == Some(*to) || (provider.is_none() && is_at(&arrow.to, to)))
        })
    }

    /// The row of the table for a module: the one that names the longest part of its path.
    fn row(&self, end: &End) -> Option<&Room> {
        let rooms = self.rooms_of(end.name())?;
        let named = rooms.iter().flat_map(|room| room.modules.iter().map(move |modules| (room, *modules)));
        let holds = |modules: &str| match modules.strip_suffix("::*") {
            Some(parent) => end.module().len() > parent.split("::").count() && starts_with(end.module(), parent),
            None => starts_with(end.module(), modules),
        };
        named.filter(|(_, modules)| holds(modules)).max_by_key(|(_, modules)| modules.len()).map(|(room, _)| room)
    }

    fn rooms_of(&self, name: &str) -> Option<&[Room]> {
        self.rooms.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, rooms)| *rooms)
    }

    /// The room of a module, its crate's name before it.
    fn room(&self, end: &End) -> Option<String> {
        let name = end.name();
        if let Some(row) = self.row(end) {
            let own = row.name.strip_suffix("::*").map(|parent| parent.split("::").count() + 1);
            return Some(match own {
                Some(length) => format!("{name}::{}", end.module()[..length].join("::")),
                None => format!("{name}::{}", row.name),
            });
        }
        match self.rooms_of(name) {
            Some(_) => None,
            None => end.module().first().map(|first| format!("{name}::{first}")),
        }
    }

    /// Rooms that use each other in a circle, and circles that are in the table and no longer in the code.
    fn faults_of_cycles(&self, arrows: &[&Arrow]) -> Vec<String> {
        let of_rooms = arrows.iter().filter(|arrow| arrow.from.name() == arrow.to.name());
        let of_rooms = of_rooms.filter_map(|arrow| Some((self.room(&arrow.from)?, self.room(&arrow.to)?)));
        let found = cycles::cycles(of_rooms);
        let excepted = self.exceptions.iter().flat_map(|exception| exception.cycles);
        let listed: Vec<Vec<String>> = (self.together.iter().chain(excepted))
            .map(|(name, modules)| modules.iter().map(|module| format!("{name}::{module}")).collect())
            .collect();
        let new = found.iter().filter(|cycle| !listed.contains(cycle)).map(|cycle| {
            format!("{} use each other in a circle: what both ends need goes to a module below them", cycle.join(", "))
        });
        let stale = listed.iter().filter(|cycle| !found.contains(cycle)).map(|cycle| {
            format!("{} are not exactly a circle any more: correct the table of layers", cycle.join(", "))
        });
        new.chain(stale).collect()
    }
}

fn starts_with(module: &[String], path: &str) -> bool {
    let mut parts = module.iter();
    path.split("::").all(|part| parts.next().is_some_and(|mine| mine == part))
}

#[cfg(test)]
mod tests;
