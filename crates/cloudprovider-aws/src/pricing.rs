//! What a machine costs by type, zone and capacity type.
