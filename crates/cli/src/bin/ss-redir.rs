//! `ss-redir`; see `ss-redir --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_shadowsocks("ss-redir")
}
