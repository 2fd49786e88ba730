//! A file, line by line, to an [`Acl`] or to all of its mistakes.
//!
//! Read generously where the two programs differ only in what they tolerate: blanks around a
//! line, a byte order mark, CRLF, comments anywhere after a blank. Strict where they would take a
//! slip for an expression that no host ever matches.

use crate::acl::{Acl, Admission, LISTS, List, Route, Rules};
use crate::domains::Domains;
use crate::expressions::Expressions;
use crate::geo::{Country, GeoDatabase};
use crate::mistake::{MISTAKES_MAX, Mistake, MistakeKind};
use crate::pattern::Pattern;
use crate::ranges::Ranges;
use crate::rule::Rule;

/// Longest file that is read, in bytes.
pub const FILE_LEN_MAX: usize = 64 << 20;

/// Longest line of a rule, in bytes. libev reads 255, rust any number.
pub const LINE_LEN_MAX: usize = 1024;

/// Most expressions that are not domains in other words. A worker keeps some kilobytes for each.
pub const EXPRESSIONS_MAX: usize = 4096;

impl Acl {
    /// Reads a file. `geo` is what `geoip:` rules take their addresses from.
    ///
    /// # Errors
    /// All mistakes in the file, in the order of their lines, up to [`MISTAKES_MAX`].
    pub fn parse(text: &[u8], geo: Option<&GeoDatabase>) -> Result<Self, Vec<Mistake>> {
        let whole_file = |kind| Err(vec![Mistake::new(1, kind, b"")]);
        if text.len() > FILE_LEN_MAX {
            return whole_file(MistakeKind::FileTooLong);
        }
        if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
            return whole_file(MistakeKind::Utf16);
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut draft = Draft::default();
        for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            if let Err(kind) = draft.read(line, text) {
                draft.mistakes.push(Mistake::new(line, kind, without_comment(text)));
            }
            // Finding one more than are reported tells that there are more.
            if draft.mistakes.len() > MISTAKES_MAX {
                break;
            }
        }
        draft.finish(geo)
    }
}

/// What one file says, while it is read.
#[derive(Debug)]
struct Draft {
    list: List,
    route: Route,
    outbound: Admission,
    domains: Domains,
    addrs: [Ranges; LISTS],
    expressions: [Expressions; LISTS],
    countries: Vec<(u32, List, Country)>,
    outbound_line: Option<u32>,
    client_names_line: Option<u32>,
    mistakes: Vec<Mistake>,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            list: List::Bypass,
            route: Route::Proxied,
            outbound: Admission::Admitted,
            domains: Domains::default(),
            addrs: Default::default(),
            expressions: Default::default(),
            countries: Vec::new(),
            outbound_line: None,
            client_names_line: None,
            mistakes: Vec::new(),
        }
    }
}

impl Draft {
    /// Reads one line.
    fn read(&mut self, line: u32, text: &[u8]) -> Result<(), MistakeKind> {
        let text = without_comment(text);
        if text.is_empty() {
            return Ok(());
        }
        if text.len() > LINE_LEN_MAX {
            return Err(MistakeKind::LineTooLong);
        }
        let text = std::str::from_utf8(text)
            .ok()
            .filter(|text| text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')))
            .ok_or(MistakeKind::NotAscii)?;
        if let Some(section) = section_name(text) {
            return self.enter(line, section);
        }
        match Rule::parse(text)? {
            Rule::Addrs(first, last) => self.addrs[self.list as usize].push(first, last),
            Rule::Domain(cover, domain) => {
                self.note_names(line);
                self.domains.push(self.list, cover, &domain.to_ascii_lowercase());
            }
            Rule::Country(country) => self.countries.push((line, self.list, country)),
            Rule::Expression(text) => {
                self.note_names(line);
                self.express(text)?;
            }
        }
        Ok(())
    }

    /// Starts a list, or sets a mode. Modes are switches: the list stays.
    fn enter(&mut self, line: u32, section: &str) -> Result<(), MistakeKind> {
        match section.to_ascii_lowercase().as_str() {
            "proxy_all" | "accept_all" => self.route = Route::Proxied,
            "bypass_all" | "reject_all" => self.route = Route::Direct,
            "outbound_allow_all" => self.outbound = Admission::Admitted,
            "outbound_block_all" => self.outbound = Admission::Refused,
            "bypass_list" | "black_list" => self.list = List::Bypass,
            "proxy_list" | "white_list" => self.list = List::Proxy,
            "outbound_block_list" => self.list = List::Block,
            "outbound_allow_list" => self.list = List::Allow,
            _ => return Err(MistakeKind::UnknownSection),
        }
        if section.len() > 9 && section[..9].eq_ignore_ascii_case("outbound_") {
            self.outbound_line.get_or_insert(line);
        }
        Ok(())
    }

    /// Keeps the first line that names hosts where a server looks for clients.
    fn note_names(&mut self, line: u32) {
        if matches!(self.list, List::Bypass | List::Proxy) {
            self.client_names_line.get_or_insert(line);
        }
    }

    /// Adds an expression, as domains if it says nothing else.
    fn express(&mut self, text: &str) -> Result<(), MistakeKind> {
        let pattern = Pattern::parse(text)?;
        if let Some(domains) = pattern.domains() {
            for (cover, domain) in domains {
                self.domains.push(self.list, cover, &domain);
            }
            return Ok(());
        }
        if self.expressions.iter().map(Expressions::len).sum::<usize>() >= EXPRESSIONS_MAX {
            return Err(MistakeKind::TooManyExpressions);
        }
        self.expressions[self.list as usize].push(text, &pattern)
    }

    /// Looks up the countries and indexes everything.
    fn finish(mut self, geo: Option<&GeoDatabase>) -> Result<Acl, Vec<Mistake>> {
        self.add_countries(geo);
        if !self.mistakes.is_empty() {
            self.mistakes.sort_by_key(Mistake::line);
            if self.mistakes.len() > MISTAKES_MAX {
                self.mistakes.truncate(MISTAKES_MAX - 1);
                let line = self.mistakes.last().map_or(1, Mistake::line);
                self.mistakes.push(Mistake::new(line, MistakeKind::MoreMistakes, b""));
            }
            return Err(self.mistakes);
        }
        self.domains.finish();
        let mut addrs = self.addrs.into_iter();
        let lists = self.expressions.map(|mut expressions| {
            expressions.finish();
            Rules { addrs: addrs.next().unwrap_or_default().finish(), expressions }
        });
        Ok(Acl {
            route: self.route,
            outbound: self.outbound,
            domains: self.domains,
            lists,
            outbound_line: self.outbound_line,
            client_names_line: self.client_names_line,
        })
    }

    fn add_countries(&mut self, geo: Option<&GeoDatabase>) {
        if self.countries.is_empty() {
            return;
        }
        let countries = std::mem::take(&mut self.countries);
        let mistake = |line, kind, country: Country| {
            Mistake::new(line, kind, format!("geoip:{country}").as_bytes())
        };
        let Some(geo) = geo else {
            let kind = if cfg!(feature = "geoip") {
                MistakeKind::NoDatabase
            } else {
                MistakeKind::CountriesLeftOut
            };
            let all = countries.iter().map(|&(line, _, country)| mistake(line, kind, country));
            self.mistakes.extend(all.take(MISTAKES_MAX + 1));
            return;
        };
        // Databases have millions of ranges: one table look-up each.
        let mut wanted = [0u8; Country::COUNT];
        let mut is_known = [false; Country::COUNT];
        for &(_, list, country) in &countries {
            wanted[country.index()] |= 1 << list as u8;
        }
        let walked = geo.walk(&mut |country, first, last| {
            is_known[country.index()] = true;
            for (list, addrs) in self.addrs.iter_mut().enumerate() {
                if wanted[country.index()] & 1 << list != 0 {
                    addrs.push(first, last);
                }
            }
        });
        for (line, _, country) in countries {
            let kind = match walked {
                Err(_) => MistakeKind::BadDatabase,
                Ok(()) if !is_known[country.index()] => MistakeKind::UnknownCountry,
                Ok(()) => continue,
            };
            self.mistakes.push(mistake(line, kind, country));
        }
    }
}

/// The line without blanks around it and without its comment: from a `#` at its start or after a
/// blank.
fn without_comment(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let is_start = |at: usize| line[at] == b'#' && (at == 0 || line[at - 1].is_ascii_whitespace());
    match (0..line.len()).find(|&at| is_start(at)) {
        Some(at) => line[..at].trim_ascii(),
        None => line,
    }
}

/// The name of a section, if the line is or was meant as its header: no name without the bracket at
/// its end.
fn section_name(line: &str) -> Option<&str> {
    let name = line.strip_prefix('[')?;
    let closed = name.strip_suffix(']');
    let name = closed.unwrap_or(name).trim_ascii();
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    is_word.then_some(if closed.is_some() { name } else { "" })
}
