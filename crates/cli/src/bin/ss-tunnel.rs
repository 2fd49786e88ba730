//! `ss-tunnel`; see `ss-tunnel --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_shadowsocks("ss-tunnel")
}
