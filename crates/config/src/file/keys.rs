//! The keys of shadowsocks-libev, shadowsocks-rust and SIP008 files, and a few of our own.

use super::readers::{
    allow_fragmentation, allowed_plugins, bind, destinations, dscp, fixed_version, hosts, key,
    locals, name, password, plugin, plugin_args, port_passwords, runtime_mode, servers, tproxy,
    users, weight,
};
use super::{Action, For, Key};
use crate::config::{AddressOrder, LogLevel};
use crate::setting as set;
use crate::value;

const NO_AUTH: &str = "authentication of local users is not in this version; listen on 127.0.0.1 \
                       and remove the key";
const NO_LAUNCHD: &str = "launchd exists on macOS only; remove the key";

/// Keys that stand at the top only.
pub(super) static TOP: &[Key] = &[
    Key::read("servers|shadowsocks", servers),
    Key::read("locals", locals).only(For::Client),
    Key::read("port_password", port_passwords).only(For::Server),
    Key::set("mode", set::MODE),
    Key::set("udp_timeout", set::UDP_TIMEOUT),
    Key::set("udp_max_associations", set::UDP_SESSIONS),
    Key::new("udp_mtu|mtu", Action::Warn(set::NO_MTU)),
    Key::set("block_private", set::BLOCK_PRIVATE).only(For::Server),
    Key::set("max_connections_per_client", set::CONNECTIONS_PER_CLIENT),
    Key::set("max_sessions_per_client", set::SESSIONS_PER_CLIENT),
    Key::set("printable_salt", set::PRINTABLE_SALT).only(For::Local),
    Key::set("user", set::USER),
    Key::set("nofile", set::NOFILE),
    Key::set("nameserver", set::NAMESERVER),
    Key::read("dns", super::readers::dns),
    Key::set("dns_cache_size", set::DNS_CACHE_SIZE),
    Key::set("fast_open", set::FAST_OPEN),
    Key::set("reuse_port", set::REUSE_PORT),
    Key::set("no_delay", set::NO_DELAY),
    Key::set("mptcp", set::MPTCP),
    Key::set("ipv6_only", set::IPV6_ONLY),
    Key::read("ipv6_first", |r, raw, f| {
        raw.address_order = r
            .boolean(f)
            .map(|first| if first { AddressOrder::Ipv6First } else { AddressOrder::System });
    }),
    Key::set("keep_alive", set::KEEP_ALIVE),
    Key::set("tcp_incoming_sndbuf", set::INCOMING_SNDBUF),
    Key::set("tcp_incoming_rcvbuf", set::INCOMING_RCVBUF),
    Key::set("tcp_outgoing_sndbuf", set::OUTGOING_SNDBUF),
    Key::set("tcp_outgoing_rcvbuf", set::OUTGOING_RCVBUF),
    Key::read("dscp", dscp).only(For::Server),
    Key::set("workers", set::WORKERS),
    Key::new("runtime", Action::Scope(RUNTIME)),
    Key::new("log", Action::Scope(LOG)),
    Key::new("security", Action::Scope(SECURITY)),
    Key::read("version", fixed_version),
    Key::new("bytes_used|bytes_remaining", Action::Quiet),
    // What people call the server, as `Link::to_json` writes it.
    Key::read("remarks", name),
    Key::new("auth", Action::Refuse("one-time auth was removed from Shadowsocks; remove the key")),
    Key::new(
        "use_syslog",
        Action::Refuse("logs go to standard error, which the systemd journal keeps; write false"),
    ),
    Key::read("tcp_tproxy", tproxy).only(For::Redir),
    Key::set("acl", set::ACL),
    Key::set("geoip_database", set::GEOIP_DATABASE),
    Key::set("manager_address", set::MANAGER_ADDRESS).only(For::Server),
    Key::set("manager_port", set::MANAGER_PORT).only(For::Server),
    Key::set("workdir", set::WORKDIR).only(For::Manager),
    Key::set("state_file", set::STATE_FILE).only(For::Manager),
    Key::new("nftables_sets", Action::Refuse(set::NO_NFTABLES)),
    Key::new("online_config", Action::Scope(ONLINE)).only(For::Client),
    Key::new("balancer", Action::Scope(BALANCER)).only(For::Client),
];

/// Keys of a server, at the top and in `servers`.
pub(super) static SERVER: &[Key] = &[
    Key::read("server", hosts),
    Key::set("server_port", set::SERVER_PORT),
    Key::read("password", password),
    Key::read("key", key),
    Key::set("method", set::METHOD),
    Key::read("users", users).only(For::Server),
    Key::read("destinations", destinations).only(For::Server),
    Key::set("timeout", set::TIMEOUT),
    Key::set("outbound_fwmark|fwmark", set::FWMARK),
    Key::set("outbound_bind_interface|interface", set::INTERFACE),
    Key::set("outbound_bind_addr", set::OUTBOUND_ADDRESS),
    Key::read("local_ipv4_address|local_ipv6_address", bind).only(For::Server),
    Key::read("outbound_udp_allow_fragmentation", allow_fragmentation),
    Key::read("plugin", plugin),
    Key::set("plugin_opts", set::PLUGIN_OPTIONS),
    Key::read("plugin_args", plugin_args),
    Key::set("plugin_mode", set::PLUGIN_MODE),
    Key::new("outbound_proxy", Action::Refuse(set::NO_PROXY)),
    Key::new(
        "outbound_user_cookie",
        Action::Refuse("user cookies exist on FreeBSD only; write \"outbound_fwmark\""),
    ),
];

/// Keys of an entry of `servers` that a single server does not have.
pub(super) static SERVER_ENTRY: &[Key] = &[
    Key::read("address", hosts),
    Key::set("port", set::SERVER_PORT),
    Key::read("disabled", |r, raw, f| raw.server.disabled = r.boolean(f).unwrap_or_default()),
    Key::read("remarks|name", name),
    Key::read("id", |r, raw, f| raw.server.id = r.text(f).map(Into::into)),
    Key::read("tcp_weight", |r, raw, f| raw.server.tcp_weight = weight(r, f)).only(For::Client),
    Key::read("udp_weight", |r, raw, f| raw.server.udp_weight = weight(r, f)).only(For::Client),
    Key::set("mode", set::SERVER_MODE),
    Key::set("acl", set::ACL).only(For::Server),
];

/// Keys of an entry of `destinations`, which is read as a server.
pub(super) static DESTINATION: &[Key] = &[
    Key::read("name", name),
    Key::read("server|address", hosts),
    Key::set("server_port|port", set::SERVER_PORT),
    Key::read("password", password),
];

/// Keys of a local listener, at the top and in `locals`.
pub(super) static LOCAL: &[Key] = &[
    // On a server this is a source address, which the validating step decides about.
    Key::set("local_address", set::LOCAL_ADDRESS),
    Key::set("local_port", set::LOCAL_PORT).only(For::Client),
    Key::set("local_udp_address", set::UDP_ADDRESS).only(For::Client),
    Key::set("local_udp_port", set::UDP_PORT).only(For::Client),
    Key::set("udp_associate_address", set::UDP_ASSOCIATE).only(For::Client),
    Key::set("protocol", set::PROTOCOL).only(For::Client),
    Key::set("tunnel_address", set::TARGET).only(For::Tunnel),
    Key::set("forward_address", set::FORWARD_ADDRESS).only(For::Client),
    Key::set("forward_port", set::FORWARD_PORT).only(For::Client),
    Key::new("socks5_auth_config_path|http_auth_config_path", Action::Refuse(NO_AUTH)),
    Key::set("tcp_redir", set::TCP_REDIR).only(For::Client),
    Key::set("udp_redir", set::UDP_REDIR).only(For::Client),
    Key::new(
        "local_dns_address|local_dns_port|remote_dns_address|remote_dns_port|client_cache_size\
         |fake_dns_record_expire_duration|fake_dns_ipv4_network|fake_dns_ipv6_network\
         |fake_dns_database_path",
        Action::Refuse(set::NO_DNS_SERVER),
    ),
    Key::new(
        "tun_interface_name|tun_interface_address|tun_interface_destination\
         |tun_device_fd_from_path",
        Action::Refuse(set::NO_TUN),
    ),
    Key::new("launchd_tcp_socket_name|launchd_udp_socket_name", Action::Refuse(NO_LAUNCHD)),
];

/// Keys of an entry of `locals` that a single listener does not have.
pub(super) static LOCAL_ENTRY: &[Key] = &[
    Key::read("disabled", |r, raw, f| raw.local.disabled = r.boolean(f).unwrap_or_default()),
    Key::set("mode", set::LOCAL_MODE),
    Key::set("acl", set::LOCAL_ACL),
];

/// Keys of an entry of `users`, which is read as a server.
pub(super) static USER: &[Key] = &[Key::read("name", name), Key::read("password", password)];

static ONLINE: &[Key] = &[
    Key::set("config_url", set::ONLINE_URL),
    Key::set("update_interval", set::ONLINE_INTERVAL),
    Key::read("allowed_plugins", allowed_plugins),
    Key::set("cache_file", set::ONLINE_CACHE),
];

static BALANCER: &[Key] = &[
    Key::set("max_server_rtt", set::MAX_SERVER_RTT),
    Key::set("check_interval", set::CHECK_INTERVAL),
    Key::set("check_best_interval", set::CHECK_BEST_INTERVAL),
];

static RUNTIME: &[Key] = &[
    Key::read("mode", runtime_mode),
    Key::read("worker_count", |r, raw, f| {
        let count = r.take(f, value::workers(f.number()));
        // "single_thread" beside it wins.
        raw.workers = raw.workers.or(count);
    }),
];

static LOG: &[Key] = &[
    Key::read("level", |r, raw, f| {
        let level = r.take(f, value::not_negative(f.number()));
        raw.log_level = level.map(|level| match level {
            0 => LogLevel::Info,
            1 => LogLevel::Debug,
            _ => LogLevel::Trace,
        });
    }),
    Key::new("format", Action::Scope(LOG_FORMAT)),
    Key::new("writers", Action::Refuse("logs go to standard error; remove the key")),
    Key::new(
        "config_path",
        Action::Refuse(
            "log configuration files are not in this version; write \"log\": {\"level\": 1}",
        ),
    ),
];

static LOG_FORMAT: &[Key] = &[Key::set("without_time", set::LOG_WITHOUT_TIME)];

static SECURITY: &[Key] = &[Key::new("replay_attack", Action::Scope(REPLAY_ATTACK))];

static REPLAY_ATTACK: &[Key] = &[Key::set("policy", set::REPLAY_POLICY)];
