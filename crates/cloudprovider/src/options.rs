//! Options of a provider as values: what the command line has to offer, and what a user gave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An option that a provider understands. The command line makes a flag and an environment variable of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDeclaration {
    /// The flag without its dashes, in kebab case, unique among all options of the binary.
    pub flag: &'static str,
    /// The environment variable; also what stands for the value in the help.
    pub env: &'static str,
    /// What values it takes.
    pub kind: OptionKind,
    /// One sentence without full stop. It says what holds where the option is not given.
    pub help: &'static str,
    /// Whether the help shows it.
    pub visibility: Visibility,
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text. The empty one is as good as none.
    Text,
    /// A file or folder. The empty path is as good as none.
    Path,
    /// On or off; off unless given.
    Switch,
}

/// Whether the help shows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// It does.
    Shown,
    /// It does not: the option is for tests.
    Hidden,
}

/// What a user gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// Of [`OptionKind::Text`].
    Text(String),
    /// Of [`OptionKind::Path`].
    Path(PathBuf),
    /// Of [`OptionKind::Switch`].
    Switch(bool),
}

/// The values of one provider's options, by flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionValues(BTreeMap<&'static str, OptionValue>);

impl OptionValues {
    /// Sets the value of a flag. An empty text or path counts as not given.
    pub fn set(&mut self, flag: &'static str, value: OptionValue) {
        let is_empty = match &value {
            OptionValue::Text(text) => text.is_empty(),
            OptionValue::Path(path) => path.as_os_str().is_empty(),
            OptionValue::Switch(_) => false,
        };
        if is_empty {
            self.0.remove(flag);
        } else {
            self.0.insert(flag, value);
        }
    }

    /// The text that was given, if any.
    pub fn text(&self, flag: &str) -> Option<&str> {
        match self.0.get(flag) {
            Some(OptionValue::Text(text)) => Some(text),
            Some(OptionValue::Path(_) | OptionValue::Switch(_)) | None => None,
        }
    }

    /// The path that was given, if any.
    pub fn path(&self, flag: &str) -> Option<&Path> {
        match self.0.get(flag) {
            Some(OptionValue::Path(path)) => Some(path),
            Some(OptionValue::Text(_) | OptionValue::Switch(_)) | None => None,
        }
    }

    /// Whether the switch is on.
    pub fn is_on(&self, flag: &str) -> bool {
        self.0.get(flag) == Some(&OptionValue::Switch(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_counts_as_not_given() {
        let mut values = OptionValues::default();
        values.set("name", OptionValue::Text("a".to_owned()));
        assert_eq!(values.text("name"), Some("a"));
        values.set("name", OptionValue::Text(String::new()));
        values.set("file", OptionValue::Path(PathBuf::new()));
        assert_eq!(values, OptionValues::default());
    }

    #[test]
    fn a_value_of_another_kind_is_not_taken_for_it() {
        let mut values = OptionValues::default();
        values.set("file", OptionValue::Path("a".into()));
        values.set("switch", OptionValue::Switch(false));
        assert_eq!((values.text("file"), values.path("file")), (None, Some(Path::new("a"))));
        assert!(!values.is_on("switch") && !values.is_on("file"));
    }
}
