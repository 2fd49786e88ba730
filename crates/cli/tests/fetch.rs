//! `adit fetch`: what it brings, what it refuses, and that no address is in what it says.

#![cfg(feature = "aws-lc")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use adit_system_tests::{Provider, SECRET, Scratch, Served, program, reserve};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Runs it with an address on its standard input.
fn fetch(url: &str, args: &[&str], certs: Option<&PathBuf>) -> Output {
    let mut command = Command::new(program("adit"));
    command.arg("fetch").args(args);
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_DIR"] {
        command.env_remove(name);
    }
    match certs {
        Some(certs) => command.env("SSL_CERT_FILE", certs),
        None => command.env_remove("SSL_CERT_FILE"),
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses its options has ended by now.
    let _ = child.stdin.take().unwrap().write_all(url.as_bytes());
    child.wait_with_output().unwrap()
}

/// What it says when it fails; it has printed nothing then.
fn failure(url: &str, args: &[&str], certs: Option<&PathBuf>) -> String {
    let output = fetch(url, args, certs);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout, b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains(SECRET) && !said.contains("127.0.0.1"), "{said}");
    said
}

#[test]
fn brings_the_answer() {
    let body = "x".repeat(1 << 20);
    let provider = Provider::start(Served::Body(body.clone()));
    let output = fetch(&format!(" {}#name\n", provider.url()), &[], None);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == body.as_bytes());
    let head = &provider.requests()[0].to_ascii_lowercase();
    assert!(head.starts_with(&format!("get /{SECRET} http/1.1\r\n")), "{head}");
    assert!(head.contains("user-agent: adit/"), "{head}");
    assert!(head.contains("accept-encoding: gzip"), "{head}");
}

#[test]
fn unpacks_and_follows() {
    // "hello\n" by gzip.
    let packed = hex("1f8b0800000000000003cb48cdc9c9e7020020303a3606000000");
    let mut raw =
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in packed.chunks(7) {
        raw.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        raw.extend(chunk);
        raw.extend(b"\r\n");
    }
    raw.extend(b"0\r\n\r\n");
    let last = Provider::start(Served::Raw(raw));
    let first = Provider::start(Served::Redirect(last.url()));
    let output = fetch(&first.url(), &[], None);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{output:?}");
}

#[test]
fn says_what_is_wrong_with_an_answer_and_prints_none_of_it() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec();
    let cut_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_vec();
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)).into_bytes();
    for (reply, says) in [
        (Served::Status(404), "answered with status 404"),
        (Served::Status(204), "answered with status 204"),
        (Served::Status(500), "answered with status 500"),
        (Served::Raw(cut), "cut off"),
        (Served::Raw(cut_chunk), "cut off"),
        (Served::Raw(b"SSH-2.0-x\r\n".to_vec()), "does not speak HTTP"),
        (Served::Raw(long), "does not speak HTTP"),
        (Served::Raw(Vec::new()), "cut off"),
        (Served::Endless, "longer than 1 MiB"),
        (Served::Redirect(format!("http://192.0.2.1/{SECRET}")), "not https"),
        (Served::Redirect("ftp://127.0.0.1/".to_owned()), "not https"),
        (Served::Redirect("/again".to_owned()), "more than 5 times"),
        (Served::Raw(b"HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n".to_vec()), "to nowhere"),
    ] {
        let provider = Provider::start(reply.clone());
        let said = failure(&provider.url(), &[], None);
        assert!(says.split('|').any(|says| said.contains(says)), "{reply:.60?}: {said}");
    }
}

#[test]
fn gives_up_on_a_provider_that_takes_too_long() {
    let provider = Provider::start(Served::Silence);
    let said = failure(&provider.url(), &["--timeout", "1"], None);
    assert!(said.contains("did not answer in time"), "{said}");
    let nobody = format!("http://127.0.0.1:{}/{SECRET}", reserve());
    let said = failure(&nobody, &[], None);
    assert!(said.contains("refuses connections") || said.contains("no connection"), "{said}");
    let unknown = format!("https://{SECRET}.invalid/");
    let said = failure(&unknown, &["--timeout", "20"], None);
    assert!(said.contains("resolved") || said.contains("in time"), "{said}");
}

#[test]
fn refuses_addresses_and_options_that_are_wrong() {
    for (url, args, says) in [
        ("", &[][..], "begins with https://"),
        ("http://192.0.2.1/token-hunter2", &[], "anybody on the way"),
        ("ss://token-hunter2@h:1", &[], "--server-url"),
        ("https://h/", &["--timeout", "0"], "1 to 600"),
        ("https://h/", &["--token-hunter2"], "--help"),
        ("https://h/", &["https://token-hunter2/"], "--help"),
    ] {
        let output = fetch(url, args, None);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says), "{said}");
        assert!(!said.contains(SECRET) || args.contains(&"--token-hunter2"), "{said}");
    }
}

/// A provider with a certificate for some names, and the file of who signed it.
fn tls_provider(scratch: &Scratch, names: &[&str], reply: Served) -> (Provider, PathBuf) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let file = scratch.write("ca.pem", &ca.self_signed(&ca_key).unwrap().pem());
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let params = CertificateParams::new(names).unwrap();
    let cert = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let provider = Provider::over(reply, move |stream: TcpStream, serve| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        serve(&mut stream);
        stream.conn.send_close_notify();
        // The reader may be gone by now.
        let _ = stream.flush();
    });
    (provider, file)
}

#[test]
fn checks_the_certificate_of_the_provider() {
    let scratch = Scratch::new();
    let (provider, file) =
        tls_provider(&scratch, &["localhost"], Served::Body("answer".to_owned()));
    let url = |host: &str| format!("https://{host}:{}/{SECRET}", provider.port());
    let output = fetch(&url("localhost"), &[], Some(&file));
    assert_eq!(output.stdout, b"answer", "{output:?}");
    let output = fetch(&url("localhost").replace("https", "ssconf"), &[], Some(&file));
    assert_eq!(output.stdout, b"answer", "{output:?}");
    let said = failure(&url("127.0.0.1"), &[], Some(&file));
    assert!(said.contains("is for another name"), "{said}");
    let other = scratch.write("none.pem", "");
    let said = failure(&url("localhost"), &[], Some(&other));
    assert!(said.contains("no certificates to check"), "{said}");
    let second = Scratch::new();
    let (_, stranger) = tls_provider(&second, &["localhost"], Served::Status(200));
    let said = failure(&url("localhost"), &[], Some(&stranger));
    assert!(said.contains("not signed by anybody whom"), "{said}");
    // What answers without TLS is no provider.
    let plain = Provider::start(Served::Silence);
    let said = failure(
        &format!("https://localhost:{}/{SECRET}", plain.port()),
        &["--timeout", "1"],
        Some(&file),
    );
    assert!(said.contains("in time"), "{said}");
}

#[test]
fn does_not_go_from_https_to_http() {
    let scratch = Scratch::new();
    let plain = Provider::start(Served::Body("answer".to_owned()));
    let (provider, file) = tls_provider(&scratch, &["localhost"], Served::Redirect(plain.url()));
    let url = format!("https://localhost:{}/{SECRET}", provider.port());
    let said = failure(&url, &[], Some(&file));
    assert!(said.contains("from https to http"), "{said}");
    assert!(plain.requests().is_empty());
}

#[test]
fn notices_an_answer_that_tls_did_not_end() {
    let scratch = Scratch::new();
    let raw = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec();
    let (provider, file) = tls_provider(&scratch, &["localhost"], Served::Raw(raw));
    let url = format!("https://localhost:{}/{SECRET}", provider.port());
    let said = failure(&url, &[], Some(&file));
    assert!(said.contains("cut off"), "{said}");
}

fn hex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
}
