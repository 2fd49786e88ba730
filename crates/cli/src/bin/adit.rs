//! `adit`; see `adit --help`.

fn main() -> std::process::ExitCode {
    adit_cli::run_adit()
}
