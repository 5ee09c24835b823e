//! The instance types that can be planned with offline.
