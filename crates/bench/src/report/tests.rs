use super::*;
use std::path::PathBuf;

static RATE: Metric = Metric::new("rate", "Mbit/s", Better::Higher, 0);
static COST: Metric = Metric::new("cost", "s", Better::Lower, 2);
static COUNT: Metric = Metric::new("count", "n", Better::Neither, 0);

fn report() -> Report {
    let mut report = Report::new("throughput");
    let installed = |program| Installed {
        program,
        version: "1".to_owned(),
        server: PathBuf::new(),
        local: PathBuf::new(),
        tunnel: PathBuf::new(),
    };
    report
        .programs(&[Program::Adit, Program::Libev, Program::Rust, Program::Direct].map(installed));
    for round in 0..3 {
        for (program, rate, cost) in [
            (Program::Adit, 1200.0, 0.5),
            (Program::Libev, 500.0, 1.0),
            (Program::Rust, 800.0, 2.0),
            (Program::Direct, 9000.0, 0.1),
        ] {
            let shift = round as f64 - 1.0;
            report.add(Sample {
                case: "up, \"1\" stream".to_owned(),
                program,
                round,
                values: vec![(&RATE, rate + shift), (&COST, cost), (&COUNT, shift)],
            });
        }
    }
    report
}

#[test]
fn compares_with_the_best_peer_for_each_figure() {
    let rows = report().rows("up, \"1\" stream");
    let ratio = |metric: &'static Metric, program| {
        let mut found = rows.iter().filter(|r| r.metric == metric && r.program == program);
        found.next().unwrap().to_best_peer
    };
    assert_eq!(ratio(&RATE, Program::Adit), Some(1.5));
    assert_eq!(ratio(&RATE, Program::Rust), Some(1.0));
    assert_eq!(ratio(&COST, Program::Adit), Some(0.5));
    assert_eq!(ratio(&COUNT, Program::Adit), None);
}

#[test]
fn shows_medians_and_spread() {
    let cells = report().cells("up, \"1\" stream");
    assert_eq!(cells[1], ["rate", "Mbit/s", "adit", "1,200", "1,199 – 1,201", "1.50"]);
}

#[test]
fn writes_every_figure_to_csv() {
    let text = report().csv();
    assert_eq!(text.lines().count(), 1 + 3 * 4 * 3);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "throughput,\"up, \"\"1\"\" stream\",adit,0,rate,Mbit/s,1199"
    );
}

#[test]
fn summary_and_verdict_follow_the_samples() {
    let mut report = report();
    assert_eq!(report.summary().len(), 12);
    assert!(report.verdict().is_ok());
    report.failure("adit: broke".to_owned());
    assert_eq!(report.verdict().unwrap_err().exit_code(), 1);
}

#[test]
fn a_best_peer_of_zero_gives_no_ratio() {
    let zero = Spread::of(&[0.0]).unwrap();
    assert_eq!(best_peer(Better::Lower, &[(Program::Libev, zero)]), None);
    assert_eq!(best_peer(Better::Lower, &[(Program::Adit, zero)]), None);
}
