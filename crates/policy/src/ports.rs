//! Sets of ports.

/// Ports that a rule names: sorted ranges, no two of which touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(Box<[(u16, u16)]>);

/// How a port is compared with a number, as Dante writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortOperator {
    /// `eq` or `=`.
    Equal,
    /// `ne` or `!=`.
    NotEqual,
    /// `lt` or `<`.
    Less,
    /// `le` or `<=`.
    LessOrEqual,
    /// `gt` or `>`.
    Greater,
    /// `ge` or `>=`.
    GreaterOrEqual,
}

impl PortOperator {
    /// Reads a word or sign.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "eq" | "=" => Self::Equal,
            "ne" | "neq" | "!=" => Self::NotEqual,
            "lt" | "<" => Self::Less,
            "le" | "<=" => Self::LessOrEqual,
            "gt" | ">" => Self::Greater,
            "ge" | ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}

impl Ports {
    /// Every port.
    pub fn all() -> Self {
        Self(Box::new([(0, u16::MAX)]))
    }

    /// Ports from `first` to `last`; none if they are the wrong way round.
    pub fn range(first: u16, last: u16) -> Self {
        Self::of_ranges([(first, last)])
    }

    /// Ports of several ranges, both ends inclusive.
    pub fn of_ranges(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1.saturating_add(1);
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        Self(ranges.into())
    }

    /// Ports that compare with `port` as wanted; `lt 0` and `gt 65535` give none.
    pub fn compare(operator: PortOperator, port: u16) -> Self {
        let below = port.checked_sub(1).map(|last| (0, last));
        let above = port.checked_add(1).map(|first| (first, u16::MAX));
        match operator {
            PortOperator::Equal => Self::range(port, port),
            PortOperator::NotEqual => Self::of_ranges([below, above].into_iter().flatten()),
            PortOperator::Less => Self::of_ranges(below),
            PortOperator::LessOrEqual => Self::range(0, port),
            PortOperator::Greater => Self::of_ranges(above),
            PortOperator::GreaterOrEqual => Self::range(port, u16::MAX),
        }
    }

    /// True if `port` is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|&(first, last)| first <= port && port <= last)
    }

    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if every port is one of them.
    pub fn is_all(&self) -> bool {
        *self.0 == [(0, u16::MAX)]
    }

    /// True if `other` has all of them.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|&(first, last)| other.0.iter().any(|&(a, b)| a <= first && last <= b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_mean_what_they_say() {
        use PortOperator as Op;
        let edges = [0, 1, 79, 80, 81, 1023, 65534, 65535];
        for port in edges {
            for other in edges {
                for (word, operator, expected) in [
                    ("eq", Op::Equal, other == port),
                    ("ne", Op::NotEqual, other != port),
                    ("lt", Op::Less, other < port),
                    ("le", Op::LessOrEqual, other <= port),
                    ("gt", Op::Greater, other > port),
                    ("ge", Op::GreaterOrEqual, other >= port),
                ] {
                    assert_eq!(PortOperator::parse(word), Some(operator));
                    let ports = Ports::compare(operator, port);
                    assert_eq!(ports.contains(other), expected, "{other} {word} {port}");
                    assert!(ports.is_subset(&Ports::all()));
                }
            }
        }
        assert!(Ports::compare(Op::Less, 0).is_empty());
        assert!(Ports::compare(Op::Greater, 65535).is_empty());
        assert!(Ports::compare(Op::GreaterOrEqual, 0).is_all());
        assert!(Ports::range(5, 4).is_empty());
        assert!(Ports::of_ranges([(1, 5), (6, 9)]).is_subset(&Ports::range(1, 9)));
        assert!(!Ports::range(1, 9).is_subset(&Ports::range(2, 9)));
    }
}
