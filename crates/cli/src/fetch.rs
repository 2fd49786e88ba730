//! `adit fetch`: the answer of a subscription's provider, by HTTPS.
//!
//! It is a program of its own, because HTTPS is larger than all the rest of `ss-local` and reads
//! what strangers send: it runs when there is something to fetch, holds no key, and is killed when
//! it takes too long. The address comes by standard input, since it is a secret; no message has any
//! of it, and nothing of what was answered.

use std::ffi::OsString;

use crate::Failure::{self, Usage};
use crate::{Outcome, print};

const HELP: &str = "\
Usage: adit fetch [--timeout SECONDS]

Reads the address of a subscription from standard input (https:// or ssconf://, or http:// to this
machine) and prints the answer: at most 1 MiB, after at most 5 redirects, all of them to https.
ss-local and ss-tunnel run it by themselves for \"online_config\"; they look for it beside their own
file, then in PATH.

  --timeout SECONDS  limit for all of it (default 30, at most 600)

Certificates are checked against the system's store, or SSL_CERT_FILE or SSL_CERT_DIR. The
variables HTTPS_PROXY, ALL_PROXY and NO_PROXY are followed, for http:// proxies.
";

/// Limit for a fetch when none is given, seconds.
const TIMEOUT_S: u64 = 30;
const TIMEOUT_MAX_S: u64 = 600;

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    use lexopt::ValueExt;
    let mut parser = lexopt::Parser::from_args(args);
    let mut timeout_s = TIMEOUT_S;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            lexopt::Arg::Long("timeout") => timeout_s = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
        return Err(Usage("--timeout takes 1 to 600 seconds".to_owned()));
    }
    answer(std::time::Duration::from_secs(timeout_s))
}

#[cfg(not(feature = "aws-lc"))]
fn answer(_: std::time::Duration) -> Outcome {
    let text = "this build has no HTTPS; put an adit of the ordinary build beside ss-local";
    Err(Failure::Failed(text.to_owned()))
}

#[cfg(feature = "aws-lc")]
fn answer(timeout: std::time::Duration) -> Outcome {
    use std::io::{Read, Write};
    use std::process::ExitCode;

    let mut text = zeroize::Zeroizing::new(String::new());
    std::io::stdin()
        .take(https::URL_READ_MAX)
        .read_to_string(&mut text)
        .map_err(|e| Failure::Failed(format!("cannot read standard input: {e}")))?;
    let url = adit_config::subscription_url(&text).map_err(Usage)?;
    let body = https::get(url, timeout).map_err(Failure::Failed)?;
    std::io::stdout().write_all(&body).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "aws-lc")]
mod https {
    use std::io::{self, Read};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use adit_config::{Password, redirected};
    use rustls::CertificateError as Certificate;
    use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
    use ureq::{Agent, Error};
    use zeroize::Zeroizing;

    /// Bytes read of standard input: more than an address may have.
    pub(super) const URL_READ_MAX: u64 = 8192;
    /// Bytes of an answer at most, unpacked: a configuration has no more either.
    const BODY_MAX: usize = 1 << 20;
    /// Redirects followed at most.
    const REDIRECTS_MAX: usize = 5;
    /// Panels choose a format by the name of the program.
    const USER_AGENT: &str = concat!("Adit/", env!("CARGO_PKG_VERSION"), " Shadowsocks");
    const ACCEPT: &str = "application/json, text/plain;q=0.9, */*;q=0.5";

    /// The answer at an address.
    pub(super) fn get(mut url: Password, limit: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
        let by = Instant::now() + limit;
        let agent = agent(&url)?;
        for _ in 0..=REDIRECTS_MAX {
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TOO_SLOW.to_owned());
            }
            let request = agent.get(url.as_str()).config().timeout_global(Some(left)).build();
            let mut response = request.call().map_err(|e| say(&e))?;
            let status = response.status().as_u16();
            match status {
                200 => return read(response.body_mut().as_reader()),
                301 | 302 | 303 | 307 | 308 => {
                    let to = response.headers().get("location").and_then(|to| to.to_str().ok());
                    let to = to.ok_or("the provider redirects to nowhere")?;
                    url = redirected(&url, to)?;
                }
                _ => return Err(format!("the provider answered with status {status}")),
            }
        }
        Err(format!("the provider redirects more than {REDIRECTS_MAX} times"))
    }

    const TOO_SLOW: &str = "the provider did not answer in time";

    fn agent(url: &Password) -> Result<Agent, String> {
        let is_plain = url.as_str().starts_with("http://");
        let store = rustls_native_certs::load_native_certs();
        if store.certs.is_empty() && !is_plain {
            return Err("there are no certificates to check the provider's against; install \
                        ca-certificates, or set SSL_CERT_FILE"
                .to_owned());
        }
        let certs: Vec<_> = store
            .certs
            .iter()
            .map(|cert| ureq::tls::Certificate::from_der(cert).to_owned())
            .collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&certs))
            .build();
        let mut config = Agent::config_builder();
        if is_plain {
            // To this machine, and not by way of another.
            config = config.proxy(None);
        }
        let config = config
            .tls_config(tls)
            .http_status_as_error(false)
            // They are followed here, where each is checked.
            .max_redirects(0)
            .user_agent(USER_AGENT)
            .accept(ACCEPT)
            .build();
        Ok(config.new_agent())
    }

    /// Reads a body, as far as a good one goes.
    fn read(body: impl Read) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(BODY_MAX + 1));
        let read = body.take(BODY_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| say(&Error::from(e)))?;
        if bytes.len() > BODY_MAX {
            return Err("the answer is longer than 1 MiB".to_owned());
        }
        Ok(bytes)
    }

    /// What went wrong, without the address: the library's own texts may hold it.
    fn say(error: &Error) -> String {
        match error {
            Error::Timeout(_) => TOO_SLOW.to_owned(),
            Error::HostNotFound => "the provider's name cannot be resolved".to_owned(),
            Error::ConnectionFailed => "no connection to the provider".to_owned(),
            Error::InvalidProxyUrl => {
                "the proxy in the environment is no http:// address".to_owned()
            }
            Error::BadUri(_) | Error::Http(_) => "the address is malformed".to_owned(),
            Error::Rustls(e) => say_tls(e),
            Error::Tls(_) => "TLS with the provider failed".to_owned(),
            Error::Io(e) => say_io(e),
            _ => "the provider does not speak HTTP as it should".to_owned(),
        }
    }

    fn say_io(error: &io::Error) -> String {
        let inner = error.get_ref();
        if let Some(tls) = inner.and_then(|e| e.downcast_ref::<rustls::Error>()) {
            return say_tls(tls);
        }
        if let Some(inner) = inner.and_then(|e| e.downcast_ref::<Error>()) {
            return say(inner);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => "the answer is cut off".to_owned(),
            io::ErrorKind::ConnectionRefused => "the provider refuses connections".to_owned(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => TOO_SLOW.to_owned(),
            io::ErrorKind::ConnectionReset => "the provider ended the connection".to_owned(),
            // A number of the system's has no address in its text; other errors may.
            _ if error.raw_os_error().is_some() => {
                format!("no connection to the provider: {error}")
            }
            // The resolver's errors have no kind.
            _ => "the provider cannot be reached; can its name be resolved?".to_owned(),
        }
    }

    fn say_tls(error: &rustls::Error) -> String {
        let why = match error {
            rustls::Error::InvalidCertificate(why) => match why {
                Certificate::Expired | Certificate::ExpiredContext { .. } => "has expired",
                Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                    "is not valid yet; is this machine's clock right?"
                }
                Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                    "is for another name"
                }
                // The second: signed by somebody who has the name of one.
                Certificate::UnknownIssuer | Certificate::BadSignature => {
                    "is not signed by anybody whom this system trusts"
                }
                Certificate::Revoked => "is revoked",
                _ => "is not good",
            },
            _ => return "TLS with the provider failed".to_owned(),
        };
        format!("the provider's certificate {why}")
    }
}
