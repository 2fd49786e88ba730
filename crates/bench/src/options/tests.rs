use super::*;

fn parse(line: &str) -> Result<Parsed, Error> {
    Options::parse(line.split_whitespace().map(str::to_owned).collect())
}

fn options(line: &str) -> Options {
    match parse(line).unwrap() {
        Parsed::Run(options) => *options,
        Parsed::Help => panic!("asked for help"),
    }
}

fn refusal(line: &str) -> String {
    match parse(line) {
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
        Ok(_) => panic!("{line:?} was taken"),
    }
}

#[test]
fn reads_every_option_of_throughput() {
    let o = options(
        "throughput --against --method aes-128-gcm,none --streams 1,4 --direction up --seconds 0.5 \
         --rounds 3 --workers 2 --json j --csv c --peers-dir a --peers-dir b --sing-box s",
    );
    assert_eq!(o.field, Field::Against);
    assert_eq!(o.methods, ["aes-128-gcm", "none"]);
    assert_eq!(o.streams, [1, 4]);
    assert_eq!(o.directions, [Direction::Up]);
    assert_eq!(o.duration, Duration::from_millis(500));
    assert_eq!((o.rounds, o.workers), (3, Some(2)));
    assert_eq!(o.peers_dirs.len(), 2);
    assert!(o.json.is_some() && o.csv.is_some() && o.sing_box.is_some());
}

#[test]
fn given_options_win_over_smoke() {
    let o = options("handshakes --rounds 2 --smoke");
    assert_eq!(o.rounds, 2);
    assert_eq!(o.duration, Duration::from_millis(300));
}

#[test]
fn alloc_has_defaults_of_its_own() {
    let o = options("alloc --require-zero");
    assert_eq!((o.rounds, o.connections, o.methods.len()), (1, 200, 3));
    assert_eq!((o.datagrams, o.sessions), (2000, 200));
    assert!(o.require_zero);
}

#[test]
fn udp_has_defaults_of_its_own() {
    let o = options("udp");
    assert_eq!((o.rounds, o.concurrency, o.datagrams), (5, 64, 2000));
    assert_eq!((o.scenarios.len(), o.methods.len()), (3, 1));
    let o = options("udp --smoke --scenarios blast,echo --concurrency 7 --datagrams 9");
    assert_eq!(o.scenarios, [Scenario::Blast, Scenario::Echo]);
    assert_eq!((o.rounds, o.concurrency, o.datagrams), (1, 7, 9));
}

#[test]
fn refuses_what_a_command_does_not_use() {
    assert_eq!(refusal("idle --streams 1"), "--streams means nothing to idle");
    assert_eq!(refusal("udp --sessions 1"), "--sessions means nothing to udp");
    assert_eq!(refusal("throughput --require-zero"), "--require-zero means nothing to throughput");
}

#[test]
fn refuses_nonsense() {
    for line in [
        "fly",
        "idle --connections 0",
        "idle --nonsense",
        "throughput --streams 1,,2",
        "throughput --direction sideways",
        "throughput --seconds nan",
        "udp --scenarios echo,flood",
        "udp --scenarios ,",
        "alloc --datagrams 0",
        "idle --programs socat",
        "idle --against --programs adit",
        "idle stray",
        "idle -x",
        "idle --json",
        "idle --peers-dir d",
        "idle --programs sing-box --workers 2",
    ] {
        refusal(line);
    }
}

#[test]
fn help_is_not_an_error() {
    for line in ["", "--help", "idle -h"] {
        assert!(matches!(parse(line), Ok(Parsed::Help)), "{line:?}");
    }
}
