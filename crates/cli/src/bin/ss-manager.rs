//! `ss-manager`; see `ss-manager --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_shadowsocks("ss-manager")
}
