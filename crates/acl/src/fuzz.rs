//! Bodies of the fuzz targets; `fuzz/` calls them with one line each.
