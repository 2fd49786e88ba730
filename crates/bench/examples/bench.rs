//! Runs the measurements without the `adit` program around them.

fn main() -> std::process::ExitCode {
    adit_bench::run(std::env::args().skip(1).collect())
}
