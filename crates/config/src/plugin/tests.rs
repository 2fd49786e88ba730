//! Plugins: names, inheritance, links.
