//! What tentative picks have done to devices.

use smallvec::SmallVec;

use super::ClaimPosition;
use crate::inventory::view::Position;

/// What tentative picks have done to a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touch {
    /// Claims that have it whole.
    pub(crate) claims: SmallVec<[ClaimPosition; 1]>,
    /// How many shares, and what they take.
    pub(crate) shares: u32,
    pub(crate) taken: SmallVec<[i128; 2]>,
}

/// The devices that something was done to, few, by position.
#[derive(Debug)]
pub(crate) struct Touched(Vec<(Position, Touch)>);

impl Touched {
    /// With room for so many.
    pub(crate) fn with_capacity(devices: usize) -> Self {
        Self(Vec::with_capacity(devices))
    }

    pub(crate) fn get(&self, position: Position) -> Option<&Touch> {
        let index = self.find(position).ok()?;
        self.0.get(index).map(|(_, touch)| touch)
    }

    /// What was done to a device, to be added to.
    pub(crate) fn of(&mut self, position: Position) -> &mut Touch {
        let index = self.find(position).unwrap_or_else(|index| {
            self.0.insert(index, (position, Touch::default()));
            index
        });
        &mut self.0.get_mut(index).expect("it was found or inserted there").1
    }

    /// Forgets a device from which everything was taken back.
    pub(crate) fn forget_if_free(&mut self, position: Position) {
        if let Ok(index) = self.find(position) {
            let free = |(_, touch): &(Position, Touch)| touch.shares == 0 && touch.claims.is_empty();
            if self.0.get(index).is_some_and(free) {
                self.0.remove(index);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Position, Touch)> {
        self.0.iter()
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = Position> {
        self.0.iter().map(|(position, _)| *position)
    }

    fn find(&self, position: Position) -> Result<usize, usize> {
        self.0.binary_search_by_key(&position, |(touched, _)| *touched)
    }
}
