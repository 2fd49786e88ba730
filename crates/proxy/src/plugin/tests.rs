//! Jobs and environments.
