//! `ss-local`; see `ss-local --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_shadowsocks("ss-local")
}
