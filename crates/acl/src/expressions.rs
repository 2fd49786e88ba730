//! The expressions of one list that are more than domains, and an index that leaves out most of
//! them.
//!
//! An expression that contains a literal text can only match a host with each three characters of
//! it. The rarest of those is looked for in an index; only expressions that are found there are
//! searched with, plus the few without any literal.
//!
//! `regex-lite` keeps the memory of a search inside of the expression, behind a mutex. Every judge
//! therefore has clones of its own: nobody waits for that mutex. The memory is made on the first
//! search and one part of it, the list of branches to explore, grows when a search needs more. So
//! that neither happens in a look-up, each expression is compiled with one more alternative,
//! `\x00(?:\x00|\x00|…)` with more branches than the expression has, and is searched once in a text
//! that starts with that character, which no name has: the list is then as long as it can get.

#[cfg(feature = "regex")]
pub(crate) use engine::{Expressions, Searchers};
#[cfg(not(feature = "regex"))]
pub(crate) use left_out::{Expressions, Searchers};

#[cfg(feature = "regex")]
mod engine {
    use std::collections::HashMap;

    use regex_lite::{Regex, RegexBuilder};

    use crate::mistake::MistakeKind;
    use crate::pattern::Pattern;

    /// Bytes of one compiled expression; about 1000 states. It bounds the time of a search too.
    const SIZE_MAX: usize = 64 << 10;
    /// Branches of one expression, see the module.
    const BRANCHES_MAX: u32 = 2048;
    /// Groups in groups in the engine, some more than [`Pattern`] takes.
    const NEST_MAX: u32 = 60;
    /// Characters that the index looks at.
    const GRAM_LEN: usize = 3;
    /// The largest texts of the index are in many names and say little.
    const COMMON: [&[u8; GRAM_LEN]; 8] =
        [b"com", b"net", b"org", b"www", b".co", b".ne", b".or", b"ww."];

    /// Expressions of one list, first collected and then indexed.
    #[derive(Debug, Default)]
    pub(crate) struct Expressions {
        regexes: Vec<Regex>,
        /// Literals of each expression until they are indexed.
        literals: Vec<Option<Vec<Vec<u8>>>>,
        /// A bit for each hash of a gram in `grams`.
        filter: [u64; 32],
        /// Which expressions a gram calls for. Sorted.
        grams: Vec<(u32, u32)>,
        /// Expressions that any name calls for.
        always: Vec<u32>,
    }

    /// One judge's copies of the expressions of one list.
    #[derive(Debug)]
    pub(crate) struct Searchers(Vec<Regex>);

    impl Expressions {
        /// Adds an expression.
        pub(crate) fn push(&mut self, text: &str, pattern: &Pattern) -> Result<(), MistakeKind> {
            let branches = pattern.branches();
            if branches > BRANCHES_MAX {
                return Err(MistakeKind::ExpressionTooLarge);
            }
            let plain = pattern.without_captures(text);
            // The flags of `plain` end with its group.
            let room = r"\x00|".repeat(branches as usize);
            let text = format!(r"\x00(?:{room}\x00)|(?:{plain})");
            let build = |size_max, text: &str| {
                RegexBuilder::new(text)
                    .case_insensitive(true)
                    .nest_limit(NEST_MAX)
                    .size_limit(size_max)
                    .build()
            };
            match build(SIZE_MAX, &text) {
                Ok(regex) => {
                    self.regexes.push(regex);
                    self.literals.push(pattern.literals());
                    Ok(())
                }
                // Its errors are text only: tell the two kinds apart by building once more.
                Err(_) if build(SIZE_MAX << 8, &plain).is_ok() => {
                    Err(MistakeKind::ExpressionTooLarge)
                }
                Err(_) => Err(MistakeKind::BadExpression),
            }
        }

        /// Makes the index.
        pub(crate) fn finish(&mut self) {
            let all = std::mem::take(&mut self.literals);
            let mut uses: HashMap<u32, u32> = HashMap::new();
            for text in all.iter().flatten().flatten() {
                for gram in text.windows(GRAM_LEN) {
                    *uses.entry(number(gram)).or_default() += 1;
                }
            }
            for gram in COMMON {
                *uses.entry(number(gram)).or_default() += u32::MAX >> 1;
            }
            for (index, literals) in (0..).zip(all) {
                let rarest = |text: &Vec<u8>| {
                    let numbers = text.windows(GRAM_LEN).map(number);
                    numbers.min_by_key(|gram| uses.get(gram).copied().unwrap_or(0))
                };
                let grams: Option<Vec<u32>> =
                    literals.and_then(|texts| texts.iter().map(rarest).collect());
                match grams {
                    Some(grams) => self.grams.extend(grams.into_iter().map(|gram| (gram, index))),
                    None => self.always.push(index),
                }
            }
            self.grams.sort_unstable();
            self.grams.dedup();
            self.grams.shrink_to_fit();
            for &(gram, _) in &self.grams {
                let (word, bit) = filter_bit(gram);
                self.filter[word] |= bit;
            }
        }

        /// Copies to search with, ready.
        pub(crate) fn searchers(&self) -> Searchers {
            let searchers: Vec<Regex> = self.regexes.clone();
            for searcher in &searchers {
                searcher.is_match("\0");
            }
            Searchers(searchers)
        }

        /// True if one of the expressions matches `name`, which is lower-case printable ASCII.
        ///
        /// `searchers` are this list's, see [`Self::searchers`]. A second search in them at the
        /// same time would allocate: whoever holds them lets nobody else use them.
        pub(crate) fn is_match(&self, searchers: &Searchers, name: &str) -> bool {
            let is_match = |index: u32| {
                searchers.0.get(index as usize).is_some_and(|regex| regex.is_match(name))
            };
            if self.regexes.is_empty() {
                return false;
            }
            self.always.iter().any(|&index| is_match(index))
                || name.as_bytes().windows(GRAM_LEN).any(|gram| {
                    let gram = number(gram);
                    let (word, bit) = filter_bit(gram);
                    self.filter[word] & bit != 0
                        && self.found(gram).any(|&(_, index)| is_match(index))
                })
        }

        /// How many there are.
        pub(crate) fn len(&self) -> usize {
            self.regexes.len()
        }

        fn found(&self, gram: u32) -> impl Iterator<Item = &(u32, u32)> {
            let start = self.grams.partition_point(|&(other, _)| other < gram);
            self.grams[start..].iter().take_while(move |&&(other, _)| other == gram)
        }
    }

    fn number(gram: &[u8]) -> u32 {
        gram.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
    }

    /// Word and bit of a gram in the filter; the multiplier is 2^32 divided by the golden ratio.
    const fn filter_bit(gram: u32) -> (usize, u64) {
        let hash = gram.wrapping_mul(0x9e37_79b9) >> 21;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }
}

#[cfg(not(feature = "regex"))]
#[allow(clippy::needless_pass_by_ref_mut, reason = "the same signatures as with an engine")]
mod left_out {
    use crate::mistake::MistakeKind;
    use crate::pattern::Pattern;

    /// No expressions: this build has no engine.
    #[derive(Debug, Default)]
    pub(crate) struct Expressions;

    /// Nothing to search with.
    #[derive(Debug)]
    pub(crate) struct Searchers;

    impl Expressions {
        pub(crate) fn push(&mut self, _: &str, _: &Pattern) -> Result<(), MistakeKind> {
            Err(MistakeKind::ExpressionsLeftOut)
        }

        pub(crate) fn finish(&mut self) {}

        pub(crate) fn searchers(&self) -> Searchers {
            Searchers
        }

        pub(crate) fn is_match(&self, _: &Searchers, _: &str) -> bool {
            false
        }

        pub(crate) fn len(&self) -> usize {
            0
        }
    }
}
