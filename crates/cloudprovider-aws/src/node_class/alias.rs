//! AMI aliases: images that AWS publishes for EKS, by family and version.

use std::fmt;

use super::spec::AmiFamily;

/// What an alias calls each family that has one.
pub(crate) const FAMILIES: [(&str, AmiFamily); 6] = [
    ("al2", AmiFamily::Al2),
    ("al2023", AmiFamily::Al2023),
    ("bottlerocket", AmiFamily::Bottlerocket),
    ("windows2019", AmiFamily::Windows2019),
    ("windows2022", AmiFamily::Windows2022),
    ("windows2025", AmiFamily::Windows2025),
];

/// The version of an alias that moves.
const LATEST: &str = "latest";

/// `family@version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The family; never [`AmiFamily::Custom`].
    pub family: AmiFamily,
    /// The version.
    pub version: AliasVersion,
}

/// Which of a family's images an alias means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AliasVersion {
    /// The one that AWS recommends at the time.
    Latest,
    /// One for good, as it is written.
    Pinned(String),
}

/// A text that is no alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no `@`, or nothing on one side of it.
    #[error("alias {0:?} is not of the form family@version")]
    Form(String),
    /// No family has this name.
    #[error("alias {0:?} names no family of images")]
    Family(String),
    /// Windows images have no other version than `latest`.
    #[error("alias {0:?}: images of Windows have no version but \"latest\"")]
    WindowsVersion(String),
}

impl Alias {
    /// Reads an alias. What comes after the first `@` is the version.
    ///
    /// # Errors
    /// If the text is none, with the text in the error.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (name, version) = text
            .split_once('@')
            .filter(|(name, version)| !name.is_empty() && !version.is_empty())
            .ok_or_else(|| Error::Form(text.to_owned()))?;
        let (_, family) =
            FAMILIES.into_iter().find(|(alias, _)| *alias == name).ok_or_else(|| Error::Family(text.to_owned()))?;
        let version = if version == LATEST { AliasVersion::Latest } else { AliasVersion::Pinned(version.to_owned()) };
        if family.is_windows() && version != AliasVersion::Latest {
            return Err(Error::WindowsVersion(text.to_owned()));
        }
        Ok(Self { family, version })
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAMILIES.iter().find(|(_, family)| *family == self.family).map_or("custom", |(name, _)| name);
        match &self.version {
            AliasVersion::Latest => write!(f, "{name}@{LATEST}"),
            AliasVersion::Pinned(version) => write!(f, "{name}@{version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_a_family_and_a_version() {
        for (text, family, version) in [
            ("al2023@latest", AmiFamily::Al2023, AliasVersion::Latest),
            ("al2@v20240807", AmiFamily::Al2, AliasVersion::Pinned("v20240807".to_owned())),
            ("bottlerocket@1.10.0", AmiFamily::Bottlerocket, AliasVersion::Pinned("1.10.0".to_owned())),
            ("al2023@@", AmiFamily::Al2023, AliasVersion::Pinned("@".to_owned())),
            ("windows2025@latest", AmiFamily::Windows2025, AliasVersion::Latest),
        ] {
            let alias = Alias::parse(text).unwrap();
            assert_eq!(alias, Alias { family, version });
            assert_eq!(alias.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_alias_is_refused_by_name() {
        for (text, expected) in [
            ("al2023", "alias \"al2023\" is not of the form family@version"),
            ("al2023@", "alias \"al2023@\" is not of the form family@version"),
            ("@latest", "alias \"@latest\" is not of the form family@version"),
            ("AL2023@latest", "alias \"AL2023@latest\" names no family of images"),
            ("custom@latest", "alias \"custom@latest\" names no family of images"),
            ("windows2022@v1", "alias \"windows2022@v1\": images of Windows have no version but \"latest\""),
        ] {
            assert_eq!(Alias::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
