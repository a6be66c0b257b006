use clap::{CommandFactory as _, Parser as _};

use super::*;

/// The fewest settings of a node.
const LEAST: [&str; 5] = [
    "--node=a",
    "--peer-listen=127.0.0.1:7073",
    "--peer=127.0.0.1:7083",
    "--witness=file:/w",
    "--state-file=/s",
];

fn check(more: &[&str]) -> Result<NodeConfig, SettingError> {
    let name = ["monolock-failover"];
    let arguments = name.iter().chain(&LEAST).chain(more);
    // A later value of a flag would be refused as given twice, so the earlier one makes room.
    let arguments: Vec<_> = arguments.clone().collect();
    let flag = |argument: &str| argument.split('=').next().map(str::to_owned);
    let last = arguments.iter().enumerate().filter(|(index, argument)| {
        !arguments[index + 1..]
            .iter()
            .any(|later| flag(later) == flag(argument))
    });
    let cli = Cli::try_parse_from(last.map(|(_, argument)| **argument)).expect("known flags");
    cli.node.check()
}

fn problem(more: &[&str]) -> String {
    let error = check(more).map(|_| ()).expect_err(&format!("{more:?}"));
    let line = error.to_string();
    assert!(line.starts_with(error.setting) && !line.contains('\n'), "{line}");
    line
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = check(&[]).unwrap();
    assert_eq!(config.node, NodeId::A);
    assert_eq!(config.peer_lock.to_string(), "127.0.0.1:7070");
    assert_eq!(config.timing.ttl(), Duration::from_secs(3));
    assert_eq!(config.follow, FollowMode::Async);
    assert_eq!(config.grace, TakeoverGrace::Lease);
    assert!(config.fast_takeover && config.dns.is_none() && config.journal.is_none());
    assert_eq!(config.hooks.time_limit, Duration::from_secs(30));
    assert!(config.clock.servers.is_empty() && !config.clock.trusted);
    assert_eq!(config.clock.max_offset, Duration::from_millis(500));
    assert_eq!(config.clock.poll_interval, Duration::from_secs(32));
    assert_eq!(config.warnings(), [""; 0]);
}

#[test]
fn an_empty_value_counts_as_unset() {
    let config = check(&[
        "--takeover-grace=",
        "--authority-ttl=",
        "--service-name=",
        "--on-active=",
    ])
    .unwrap();
    assert_eq!(config.grace, TakeoverGrace::Lease);
    assert_eq!(config.hooks.on_active, None);
    assert!(problem(&["--node="]).starts_with("MONOLOCK_NODE: missing"));
}

#[test]
fn every_setting_is_taken() {
    let config = check(&[
        "--node=b",
        "--peer-listen=:7073",
        "--peer=node-a.example:7073",
        "--peer-lock=locks-a.example:7000",
        "--peer-secret=0123456789abcdef",
        "--listen=192.0.2.2:7000",
        "--authority-ttl=300ms",
        "--fast-takeover=off",
        "--follow=sync",
        "--takeover-grace=5s",
        "--service-name=locks.example.com",
        "--dns-listen=192.0.2.2:53",
        "--peer-advertise=192.0.2.1,2001:db8::1",
        "--fence-command=power off",
        "--on-active=true",
        "--on-standby=false",
        "--hook-timeout=2s",
        "--journal=/j",
    ])
    .unwrap();
    assert_eq!(config.link.listen.to_string(), "0.0.0.0:7073");
    assert_eq!(config.peer_lock.to_string(), "locks-a.example:7000");
    assert_eq!(config.timing.ttl(), Duration::from_millis(300));
    assert!(!config.fast_takeover);
    assert_eq!(config.follow, FollowMode::Sync);
    assert_eq!(config.grace, TakeoverGrace::AtMost(Duration::from_secs(5)));
    let dns = config.dns.as_ref().unwrap();
    assert!(matches!(&dns.by, NameService::Embedded { zone, .. } if zone.name() == "locks.example.com."));
    assert_eq!(dns.advertise, ["192.0.2.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(dns.peer_advertise.len(), 2);
    assert_eq!(config.hooks.fence_command.as_deref(), Some("power off"));
    assert_eq!(config.hooks.time_limit, Duration::from_secs(2));
    assert_eq!(config.journal, Some("/j".into()));
    assert_eq!(config.warnings().len(), 2, "{:?}", config.warnings());
}

#[test]
fn every_wrong_value_is_one_line_that_names_its_setting() {
    for (wrong, expected) in [
        ("--node=c", "MONOLOCK_NODE: \"c\" is not a or b"),
        (
            "--peer-listen=nowhere",
            "MONOLOCK_PEER_LISTEN_ADDRESS: \"nowhere\"",
        ),
        ("--peer=nowhere", "MONOLOCK_PEER_ADDRESS: \"nowhere\""),
        ("--peer=", "MONOLOCK_PEER_ADDRESS: missing"),
        ("--peer-lock=:1", "MONOLOCK_PEER_LOCK_ADDRESS: \":1\""),
        (
            "--peer-secret=short",
            "MONOLOCK_PEER_SECRET: the shared secret has 5 bytes",
        ),
        (
            "--peer-secret-file=/nowhere",
            "MONOLOCK_PEER_SECRET_FILE: cannot read /nowhere",
        ),
        ("--witness=", "MONOLOCK_WITNESS: missing"),
        ("--witness=file:", "MONOLOCK_WITNESS: \"file:\" is no witness"),
        ("--witness=/w", "MONOLOCK_WITNESS: \"/w\" is no witness"),
        (
            "--witness=mysql://u:p@h/d",
            "MONOLOCK_WITNESS: \"mysql:...\" is no witness",
        ),
        ("--witness=dns:x.example.com", "MONOLOCK_DNS_SERVER: missing"),
        #[cfg(feature = "s3")]
        ("--witness=s3://bucket", "MONOLOCK_WITNESS: it names no object"),
        #[cfg(not(feature = "s3"))]
        (
            "--witness=s3://bucket/key",
            "MONOLOCK_WITNESS: this program was built without S3",
        ),
        #[cfg(feature = "postgres")]
        (
            "--witness=postgres:/x",
            "MONOLOCK_WITNESS: the witness postgres refuses",
        ),
        ("--witness=none", "MONOLOCK_UNPROVEN: missing"),
        ("--unproven=wait", "MONOLOCK_UNPROVEN: is for pairs"),
        ("--reserve=1h", "MONOLOCK_RESERVE: is for pairs"),
        ("--state-file=", "MONOLOCK_STATE_FILE: missing"),
        ("--authority-ttl=299ms", "MONOLOCK_AUTHORITY_TTL: "),
        ("--authority-ttl=soon", "MONOLOCK_AUTHORITY_TTL: \"soon\""),
        ("--fast-takeover=yes", "MONOLOCK_FAST_TAKEOVER: \"yes\""),
        ("--follow=maybe", "MONOLOCK_FOLLOW: \"maybe\""),
        ("--takeover-grace=0s", "MONOLOCK_TAKEOVER_GRACE: "),
        ("--dns=bind", "MONOLOCK_DNS: \"bind\""),
        ("--dns=embedded", "MONOLOCK_SERVICE_NAME: missing"),
        (
            "--service-name=locks.example.com",
            "MONOLOCK_ADVERTISE_ADDRESS: missing",
        ),
        ("--hook-timeout=0s", "MONOLOCK_HOOK_TIMEOUT: "),
        ("--listen=nowhere", "MONOLOCK_LISTEN_ADDRESS: "),
        ("--listen=127.0.0.1:0", "MONOLOCK_PEER_LOCK_ADDRESS: missing"),
    ] {
        let line = problem(&[wrong]);
        assert!(line.starts_with(expected), "{wrong}: {line}");
    }
    let line = problem(&["--service-name=locks", "--advertise=192.0.2.1"]);
    assert!(line.starts_with("MONOLOCK_SERVICE_NAME: "), "{line}");
    let line = problem(&["--service-name=a.b", "--advertise=0.0.0.0"]);
    assert!(line.starts_with("MONOLOCK_ADVERTISE_ADDRESS: 0.0.0.0"), "{line}");
}

#[test]
fn beyond_loopback_the_link_needs_a_secret() {
    let line = problem(&["--peer-listen=0.0.0.0:7073"]);
    assert!(line.starts_with("MONOLOCK_PEER_SECRET: "), "{line}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "0123456789abcdef0123\n").unwrap();
    let from_file = format!("--peer-secret-file={}", path.display());
    check(&["--peer-listen=0.0.0.0:7073", &from_file]).unwrap();
    let line = problem(&[&from_file, "--peer-secret=0123456789abcdef0123"]);
    assert!(line.starts_with("MONOLOCK_PEER_SECRET_FILE: "), "{line}");
}

#[test]
fn the_files_of_the_links_certificates_go_together() {
    for some in [
        &["--peer-tls-cert=c.pem"][..],
        &["--peer-tls-key=k.pem", "--peer-tls-ca=ca.pem"],
    ] {
        let line = problem(some);
        assert!(
            line.starts_with("MONOLOCK_PEER_TLS_CERT: ") && line.contains("go together"),
            "{line}"
        );
    }
    let line = problem(&[
        "--peer-tls-cert=/nowhere",
        "--peer-tls-key=/nowhere",
        "--peer-tls-ca=/nowhere",
    ]);
    assert!(
        line.contains("/nowhere: cannot be used as this node's certificate"),
        "{line}"
    );
}

#[test]
fn a_file_is_no_witness_for_two_machines_and_that_is_said() {
    let config = check(&["--peer=192.0.2.1:7073"]).unwrap();
    assert!(config.warnings()[0].starts_with("MONOLOCK_WITNESS"));
}

#[test]
fn commands_need_only_the_link() {
    let arguments = [
        "monolock-failover",
        "--node=b",
        "--peer-listen=127.0.0.1:1",
        "--peer=x:2",
        "status",
        "--json",
    ];
    let cli = Cli::try_parse_from(arguments).unwrap();
    assert_eq!(cli.command, Some(Command::Status { json: true }));
    let (node, link) = cli.node.check_link().unwrap();
    assert_eq!((node, link.peer.to_string()), (NodeId::B, "x:2".into()));
}

#[cfg(feature = "postgres")]
#[test]
fn a_row_in_postgres_is_taken_and_its_password_not_shown() {
    let config = check(&["--witness=postgres://pair:hunter2@db/locks#orders"]).unwrap();
    let WitnessSetting::Postgres { url, pair } = &config.witness else {
        panic!("{:?}", config.witness);
    };
    assert_eq!(
        (url.reveal(), pair.as_str()),
        ("postgres://pair:hunter2@db/locks", "orders")
    );
    assert!(!format!("{config:?}").contains("hunter2"));
    let config = check(&["--witness=postgresql://pair@db/locks"]).unwrap();
    assert!(matches!(&config.witness, WitnessSetting::Postgres { pair, .. } if pair == "default"));
}

#[test]
fn a_zone_to_update_is_taken_for_the_name_and_the_witness() {
    let update = [
        "--dns-server=192.0.2.53",
        "--dns-zone=example.com",
        "--dns-key=pair-key:c2VjcmV0",
        "--service-name=locks.example.com",
        "--advertise=192.0.2.1",
        "--dns=rfc2136",
        "--witness=dns:_monolock.example.com",
    ];
    let config = check(&update).unwrap();
    let WitnessSetting::Dns { primary, name } = &config.witness else {
        panic!("{:?}", config.witness);
    };
    assert_eq!(primary.server().to_string(), "192.0.2.53:53");
    assert_eq!(name, "_monolock.example.com");
    assert!(matches!(config.dns.as_ref().unwrap().by, NameService::Updated(_)));
    assert!(!format!("{config:?}").contains("c2VjcmV0"));
    for (wrong, expected) in [
        ("--dns-server=", "MONOLOCK_DNS_SERVER: missing"),
        ("--dns-server=a b", "MONOLOCK_DNS_SERVER: \"a b\""),
        ("--dns-zone=", "MONOLOCK_DNS_ZONE: missing"),
        ("--dns-zone=.", "MONOLOCK_DNS_ZONE: "),
        ("--dns-key=", "MONOLOCK_DNS_KEY_FILE: missing"),
        ("--dns-key=nonsense", "MONOLOCK_DNS_KEY: the TSIG key"),
        ("--dns-key-file=/nowhere", "MONOLOCK_DNS_KEY_FILE: is set beside"),
        ("--service-name=locks.example.org", "MONOLOCK_SERVICE_NAME: "),
        ("--witness=dns:_monolock.example.org", "MONOLOCK_WITNESS: "),
    ] {
        let line = problem(&[update.as_slice(), &[wrong]].concat());
        assert!(line.starts_with(expected), "{wrong}: {line}");
    }
}

#[test]
fn time_servers_have_the_port_of_their_protocol_unless_another_is_given() {
    let config = check(&[
        "--ntp-servers=ntp1.example, 192.0.2.7:1123 ,[2001:db8::7]",
        "--max-clock-offset=50ms",
        "--ntp-poll-interval=64s",
        "--trust-clock=on",
    ])
    .unwrap();
    let servers: Vec<_> = config.clock.servers.iter().map(ToString::to_string).collect();
    assert_eq!(
        servers,
        ["ntp1.example:123", "192.0.2.7:1123", "[2001:db8::7]:123"]
    );
    assert!(config.clock.trusted && config.warnings().is_empty());
    assert_eq!(config.clock.max_offset, Duration::from_millis(50));
    assert_eq!(config.clock.poll_interval, Duration::from_secs(64));

    let two = check(&["--ntp-servers=a,b"]).unwrap();
    assert!(
        two.warnings()[0].starts_with("MONOLOCK_NTP_SERVERS"),
        "{:?}",
        two.warnings()
    );
    for (setting, argument) in [
        ("MONOLOCK_NTP_SERVERS", "--ntp-servers=a,,b"),
        ("MONOLOCK_NTP_SERVERS", "--ntp-servers=a:0"),
        ("MONOLOCK_NTP_SERVERS", "--ntp-servers=a,a:123"),
        (
            "MONOLOCK_NTP_SERVERS",
            "--ntp-servers=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        ),
        ("MONOLOCK_MAX_CLOCK_OFFSET", "--max-clock-offset=0s"),
        ("MONOLOCK_NTP_POLL_INTERVAL", "--ntp-poll-interval=often"),
        ("MONOLOCK_TRUST_CLOCK", "--trust-clock=yes"),
    ] {
        assert!(problem(&[argument]).starts_with(setting), "{argument}");
    }
}
