//! What is wrong with a line, and what to write instead.

use std::fmt;

/// Most mistakes that are reported of one file.
pub const MISTAKES_MAX: usize = 100;

/// The setting that names the database of countries, as messages call it.
pub const GEO_SETTING: &str = "geoip_database";

/// Characters of a rule that a message repeats.
const EXCERPT_LEN_MAX: usize = 60;

/// What is wrong with a line. The file's author made the mistake; the file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MistakeKind {
    /// The file is longer than [`FILE_LEN_MAX`](crate::FILE_LEN_MAX).
    FileTooLong,
    /// The file is UTF-16.
    Utf16,
    /// The line is longer than [`LINE_LEN_MAX`](crate::LINE_LEN_MAX).
    LineTooLong,
    /// A section of this name does not exist.
    UnknownSection,
    /// The rule has a character outside ASCII, or a control character.
    NotAscii,
    /// What follows `|`, `||`, `full:` or `suffix:` is not a domain.
    BadDomain,
    /// The rule looks like an address and is none.
    BadAddress,
    /// The number after `/` is missing or too large.
    BadPrefixLength,
    /// The rule starts like a form of another program.
    UnknownForm,
    /// The rule starts with `*`.
    Wildcard,
    /// The expression is malformed, or uses something that is not there.
    BadExpression,
    /// The expression looks ahead or behind.
    LookAround,
    /// The expression has a blank or `#`, so that no host matches.
    BlankInExpression,
    /// The expression needs too much memory.
    ExpressionTooLarge,
    /// More than [`EXPRESSIONS_MAX`](crate::EXPRESSIONS_MAX) expressions.
    TooManyExpressions,
    /// This program was built without expressions.
    ExpressionsLeftOut,
    /// What follows `geoip:` is not a country code.
    BadCountry,
    /// The rule needs a database and there is none.
    NoDatabase,
    /// The database has no addresses of this country.
    UnknownCountry,
    /// The database is damaged.
    BadDatabase,
    /// This program was built without country databases.
    CountriesLeftOut,
    /// There are more mistakes than are reported.
    MoreMistakes,
}

impl MistakeKind {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::FileTooLong => "acl_file_too_long",
            Self::Utf16 => "acl_utf16",
            Self::LineTooLong => "acl_line_too_long",
            Self::UnknownSection => "acl_unknown_section",
            Self::NotAscii => "acl_not_ascii",
            Self::BadDomain => "acl_bad_domain",
            Self::BadAddress => "acl_bad_address",
            Self::BadPrefixLength => "acl_bad_prefix_length",
            Self::UnknownForm => "acl_unknown_form",
            Self::Wildcard => "acl_wildcard",
            Self::BadExpression => "acl_bad_expression",
            Self::LookAround => "acl_look_around",
            Self::BlankInExpression => "acl_blank_in_expression",
            Self::ExpressionTooLarge => "acl_expression_too_large",
            Self::TooManyExpressions => "acl_too_many_expressions",
            Self::ExpressionsLeftOut => "acl_expressions_left_out",
            Self::BadCountry => "acl_bad_country",
            Self::NoDatabase => "acl_no_database",
            Self::UnknownCountry => "acl_unknown_country",
            Self::BadDatabase => "acl_bad_database",
            Self::CountriesLeftOut => "acl_countries_left_out",
            Self::MoreMistakes => "acl_more_mistakes",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::FileTooLong => "the file is longer than 64 MiB; write fewer rules",
            Self::Utf16 => "the file is UTF-16; save it as UTF-8",
            Self::LineTooLong => "a line has at most 1024 bytes; split the rule",
            Self::UnknownSection => {
                "no such section; write [bypass_all], [proxy_all], [bypass_list], [proxy_list] or \
                 their other names [reject_all], [accept_all], [black_list], [white_list], or \
                 [outbound_block_list], [outbound_allow_list], [outbound_block_all], \
                 [outbound_allow_all]"
            }
            Self::NotAscii => {
                "rules are printable ASCII; write international names in their xn-- form"
            }
            Self::BadDomain => {
                "not a domain; write ||example.com for a domain with everything below it, \
                 |example.com for this host alone"
            }
            Self::BadAddress => {
                "not an address; write 192.0.2.1, 192.0.2.0/24, 2001:db8::1 or 2001:db8::/32"
            }
            Self::BadPrefixLength => {
                "the number after / is from 0 to 32 for IPv4 and to 128 for IPv6"
            }
            Self::UnknownForm => {
                "no such form of rule; write ||example.com for a domain with everything below it, \
                 |example.com for this host alone, geoip:CC for a country, an address, or an \
                 expression"
            }
            Self::Wildcard => {
                "rules have no wildcards; write ||example.com for a domain with everything below \
                 it, or an expression with .* in it"
            }
            Self::BadExpression => {
                "as a regular expression this is malformed or asks for something that is not \
                 supported; write ||example.com for a domain, or (^|\\.)example[0-9]\\.com$"
            }
            Self::LookAround => {
                "expressions cannot look ahead or behind; write the rule without it and the \
                 exception in the other list"
            }
            Self::BlankInExpression => {
                "no host has a blank or # in its name; write a comment after a blank and #, or on a \
                 line of its own"
            }
            Self::ExpressionTooLarge => {
                "the expression takes too much memory; write smaller numbers in {}, or several rules"
            }
            Self::TooManyExpressions => {
                "a file has at most 4096 expressions that are not plain domains; write domains as \
                 ||example.com"
            }
            Self::ExpressionsLeftOut => {
                "this program was built without regular expressions (feature regex); write \
                 ||example.com, or an expression of the form (^|\\.)example\\.com$"
            }
            Self::BadCountry => "write geoip: and the two letters of a country, such as geoip:CN",
            Self::NoDatabase => {
                "geoip: needs a database of countries; name a MaxMind .mmdb file in the setting \
                 \"geoip_database\""
            }
            Self::UnknownCountry => {
                "the database that \"geoip_database\" names has no addresses of this country; write \
                 another code, or name a database of countries"
            }
            Self::BadDatabase => {
                "the database that \"geoip_database\" names is damaged; name an intact .mmdb file"
            }
            Self::CountriesLeftOut => {
                "this program was built without geoip: (feature geoip); write the addresses instead"
            }
            Self::MoreMistakes => "and more mistakes; mend these first",
        }
    }
}

/// One mistake of a file. It prints as `line 7: "example": what is wrong; what to write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    line: u32,
    kind: MistakeKind,
    /// The start of the rule, in printable ASCII.
    excerpt: Box<str>,
}

impl Mistake {
    pub(crate) fn new(line: u32, kind: MistakeKind, rule: &[u8]) -> Self {
        let mut excerpt: String = rule
            .iter()
            .take(EXCERPT_LEN_MAX)
            .flat_map(|byte| byte.escape_ascii())
            .map(char::from)
            .collect();
        if rule.len() > EXCERPT_LEN_MAX {
            excerpt.push_str("...");
        }
        Self { line, kind, excerpt: excerpt.into() }
    }

    /// The line, counted from 1.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// What is wrong.
    pub const fn kind(&self) -> MistakeKind {
        self.kind
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.excerpt.is_empty() {
            write!(f, "\"{}\": ", self.excerpt)?;
        }
        f.write_str(self.kind.advice())
    }
}

impl std::error::Error for Mistake {}
