//! The known name that a mistyped one was probably meant to be.

/// Longest name compared; the work grows with the square.
const NAME_LEN_MAX: usize = 64;

/// The closest of `known` to `name`, unless even that one is far off.
pub(crate) fn nearest(
    name: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let mut allowed = 1 + name.len() / 5;
    let mut found = None;
    for candidate in known {
        let distance = distance(name, candidate);
        if distance < allowed || distance == allowed && found.is_none() {
            (allowed, found) = (distance, Some(candidate));
        }
    }
    found
}

/// Edits (insert, delete, replace, swap neighbours) from one name to the other, without case; `a`
/// is not longer than [`NAME_LEN_MAX`], and a `b` that is counts as far away.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if b.len() > NAME_LEN_MAX {
        return usize::MAX;
    }
    // Row `i` and the two above it, in turn.
    let mut rows = [[0; NAME_LEN_MAX + 1]; 3];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i % 3][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = |i: usize, j: usize| a[i].eq_ignore_ascii_case(&b[j]);
                let above = rows[(i + 2) % 3];
                let replace = above[j - 1] + usize::from(!same(i - 1, j - 1));
                let best = replace.min(above[j] + 1).min(rows[i % 3][j - 1] + 1);
                let swapped = i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1);
                if swapped { best.min(rows[(i + 1) % 3][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len() % 3][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typing_errors_and_nothing_else() {
        let known = || ["password", "server", "server_port", "plugin"].into_iter();
        assert_eq!(nearest("passwrod", &mut known()), Some("password"));
        assert_eq!(nearest("Server", &mut known()), Some("server"));
        assert_eq!(nearest("serverport", &mut known()), Some("server_port"));
        assert_eq!(nearest("weather", &mut known()), None);
        assert_eq!(nearest(&"x".repeat(1000), &mut known()), None);
    }
}
