//! A network in which firewall rules give a redirector its traffic: a namespace of our own.
//!
//! Clients talk to [`FRONT`], an address of `lo`. Their packets are given to the redirector, by
//! REDIRECT or TPROXY; what its server sends there carries a mark of its own and is turned to
//! 127.0.0.1, where the targets are. So a redirector may answer as `FRONT` at a target's very port.
//!
//! Needs root, `ip` and `nft`. The calling thread, which has to be the main one, lives in the
//! namespace as long as the value does, and with it all threads and programs that it starts.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::configuration::Interception;
use crate::error::{Context, Error};

/// Address that is redirected.
pub(crate) const FRONT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Firewall mark of what the server sends.
pub(crate) const SERVER_MARK: u32 = 0xAD19;
/// Firewall mark of what the redirector sends, unless it is told another.
const REDIRECTOR_MARK: u32 = 0xAD17;
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The namespace.
pub(crate) struct Network {
    name: String,
    home: File,
}

impl Network {
    /// Makes the namespace and moves into it.
    pub(crate) fn enter() -> Result<Self, Error> {
        let home = File::open(OWN_NAMESPACE).context(|| "cannot open a namespace".to_owned())?;
        let name = format!("adit-bench-{}", std::process::id());
        run("ip", &["netns", "add", &name], "")?;
        let network = Self { name, home };
        let path = format!("/run/netns/{}", network.name);
        let inside = File::open(&path).context(|| format!("cannot open {path}"))?;
        move_into(&inside).context(|| "cannot enter a namespace".to_owned())?;
        run("ip", &["link", "set", "lo", "up"], "")?;
        run("ip", &["addr", "add", &format!("{FRONT}/32"), "dev", "lo"], "")?;
        Ok(network)
    }

    /// Gives a redirector at a port of 127.0.0.1 what is sent to two ports of [`FRONT`].
    pub(crate) fn redirect(
        &self,
        by: Interception,
        redirector: u16,
        (tcp, udp): (u16, u16),
    ) -> Result<(), Error> {
        let (nat, marked) = match by {
            Interception::Redirect => {
                (format!("ip daddr {FRONT} tcp dport {tcp} redirect to :{redirector}"), "")
            }
            Interception::Tproxy => (String::new(), "tcp dport $TCP meta mark set 1"),
        };
        let marked = marked.replace("$TCP", &tcp.to_string());
        let own = format!("meta mark {{ {SERVER_MARK:#x}, {REDIRECTOR_MARK:#x} }} accept");
        let script = format!(
            "table ip adit_bench\ndelete table ip adit_bench\ntable ip adit_bench {{
chain turn {{
type nat hook output priority -100; policy accept;
meta mark {SERVER_MARK:#x} ip daddr {FRONT} meta l4proto {{ tcp, udp }} dnat to 127.0.0.1
{own}
{nat}
}}
chain sent {{
type route hook output priority mangle; policy accept;
{own}
ip daddr != {FRONT} accept
udp dport {udp} meta mark set 1
{marked}
}}
chain given {{
type filter hook prerouting priority mangle; policy accept;
meta mark 1 meta l4proto {{ tcp, udp }} tproxy to 127.0.0.1:{redirector} accept
}}
}}\n"
        );
        run("nft", &["-f", "-"], &script)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = move_into(&self.home) {
            crate::report::note(&format!("cannot leave a namespace: {error}"));
        }
        if let Err(error) = run("ip", &["netns", "del", &self.name], "") {
            crate::report::note(&format!("a namespace stays behind: {error}"));
        }
    }
}

fn move_into(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs a command with something to read.
fn run(program: &str, args: &[&str], input: &str) -> Result<(), Error> {
    let context = || format!("cannot run {program}");
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context(context)?;
    let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
    let done = child.wait_with_output().context(context)?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Error::Run(format!("{program} fails ({}): {}", done.status, said.trim())));
    }
    written.context(context)
}
