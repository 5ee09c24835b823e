//! What an object that cannot be read says of itself before the place where it is broken.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};

use super::super::raw::RawObject;

/// The parts of an object's metadata that it was found by.
#[derive(Debug, Default)]
pub(super) struct Named(ObjectMeta);

impl Named {
    /// Of an object's text, which may be cut or broken anywhere. The API server writes the metadata first.
    pub(super) fn of(text: &[u8]) -> Self {
        let mut named = Self::default();
        // It fails, or why would anybody ask; what was found until then stays.
        let _ = Fields { of: Whose::Object, named: &mut named }
            .deserialize(&mut serde_json::Deserializer::from_slice(text));
        named
    }

    /// The object with nothing but its metadata, if that has a name.
    pub(super) fn object(self) -> Option<RawObject> {
        let Self(metadata) = self;
        metadata.name.as_ref()?;
        let json = json!({"metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }});
        Some(RawObject { json, metadata })
    }
}

enum Whose {
    Object,
    Metadata,
}

struct Fields<'a> {
    of: Whose,
    named: &'a mut Named,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(field) = entries.next_key::<String>()? {
            let Named(metadata) = &mut *self.named;
            let target = match (&self.of, field.as_str()) {
                (Whose::Object, "metadata") => {
                    entries.next_value_seed(Fields { of: Whose::Metadata, named: self.named })?;
                    continue;
                }
                (Whose::Metadata, "name") => &mut metadata.name,
                (Whose::Metadata, "namespace") => &mut metadata.namespace,
                (Whose::Metadata, "uid") => &mut metadata.uid,
                (Whose::Metadata, "resourceVersion") => &mut metadata.resource_version,
                _ => {
                    // However deep it is.
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            match entries.next_value::<Value>()? {
                Value::String(text) => *target = Some(text),
                other => return Err(A::Error::custom(format!("{field} is {other}"))),
            }
        }
        Ok(())
    }
}
