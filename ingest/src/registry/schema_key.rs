//! The key by which a record names its writer's schema.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchemaKey {
    Id(u32),
    /// The bytes of a UUID in the order of its text form.
    Guid([u8; 16]),
}

impl SchemaKey {
    /// Returns the path of the schema in the registry's API, below its URL. `None` if no registry can have such an id:
    /// their ids are signed 32-bit integers.
    pub(super) fn path(self) -> Option<[String; 3]> {
        let (kind, name) = match self {
            Self::Id(id) => ("ids", i32::try_from(id).ok()?.to_string()),
            Self::Guid(guid) => ("guids", Hyphenated(guid).to_string()),
        };
        Some(["schemas".into(), kind.into(), name])
    }

    /// Returns the name of the file in which the schema is cached.
    pub(super) fn file_name(self) -> String {
        match self {
            Self::Id(id) => format!("id-{id}"),
            Self::Guid(guid) => format!("guid-{}", Hyphenated(guid)),
        }
    }
}

impl fmt::Display for SchemaKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(out, "id {id}"),
            Self::Guid(guid) => write!(out, "guid {}", Hyphenated(*guid)),
        }
    }
}

/// Displays a UUID in its text form.
struct Hyphenated([u8; 16]);

impl fmt::Display for Hyphenated {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(out, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: SchemaKey = SchemaKey::Guid([
        0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1,
        0xf0,
    ]);

    #[test]
    fn keys_are_displayed_as_in_the_registry() {
        assert_eq!(SchemaKey::Id(7).to_string(), "id 7");
        assert_eq!(GUID.to_string(), "guid 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
        assert_eq!(GUID.file_name(), "guid-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
        assert_eq!(SchemaKey::Id(u32::MAX).file_name(), "id-4294967295");
        assert!(SchemaKey::Id(2_147_483_647).path().is_some());
    }
}
