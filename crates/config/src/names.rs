//! Names of one thing in one text, joined by `|`: a table that says them so needs no list of its
//! own for each.

/// The names in a text.
pub(crate) struct Names(&'static str);

impl Names {
    /// The names in `joined`, none of which is empty.
    pub(crate) const fn of(joined: &'static str) -> Self {
        Self(joined)
    }
}

impl Iterator for Names {
    type Item = &'static str;

    // Called from many loops, none of which is worth a copy.
    #[inline(never)]
    fn next(&mut self) -> Option<&'static str> {
        let end = self.0.bytes().position(|b| b == b'|').unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(1..).unwrap_or_default();
        Some(name).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_bars() {
        assert_eq!(Names::of("").count(), 0);
        assert_eq!(Names::of("a").collect::<Vec<_>>(), ["a"]);
        assert_eq!(Names::of("a|--b|c").collect::<Vec<_>>(), ["a", "--b", "c"]);
    }
}
