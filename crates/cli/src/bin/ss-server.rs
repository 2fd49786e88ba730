//! `ss-server`; see `ss-server --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_shadowsocks("ss-server")
}
