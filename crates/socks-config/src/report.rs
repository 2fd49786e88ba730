//! What `--check --json` and `config metadata --json` print: one line each, in Alighieri's form.

use crate::Loaded;
use crate::config::ListenAt;
use crate::finding::Finding;
use crate::json::Object;
use crate::keys::{KEYS, Reload, Scope};

/// The answer to a check.
pub fn check_json(path: &str, checked: &Result<Loaded, Vec<Finding>>) -> String {
    match checked {
        Ok(loaded) => {
            let config = &loaded.config;
            let listen: Vec<String> =
                config.listeners.iter().map(|listener| listen_text(&listener.at)).collect();
            let listen = listen.join(" ");
            let optional = |text: &Option<String>| text.clone().unwrap_or_default();
            let sources = &loaded.sources;
            Object::new()
                .bool("ok", true)
                .text("path", path)
                .text("message", "configuration is valid")
                .text("listen", &listen)
                .bool("acme", false)
                .text("acme_cache", "")
                .text("log_file", &optional(&config.log.file))
                .text("userlist", &optional(&config.auth.userlist))
                .texts("declared_config_sources", &sources.declared)
                .texts("canonical_config_sources", &sources.canonical)
                .texts("declared_config_include_patterns", &sources.declared_patterns)
                .texts("canonical_config_include_patterns", &sources.canonical_patterns)
                .finish()
        }
        Err(findings) => {
            let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
            Object::new()
                .bool("ok", false)
                .text("path", path)
                .text("error", &lines.join("\n"))
                .finish()
        }
    }
}

fn listen_text(at: &ListenAt) -> String {
    match at {
        ListenAt::Addr(addr) => addr.to_string(),
        ListenAt::Interface { name, port, .. } => format!("{name}:{port}"),
    }
}

/// Every setting and what a reload does with it.
pub fn metadata_json() -> String {
    let settings: Vec<String> = KEYS
        .iter()
        .map(|key| {
            let reload = match key.reload {
                Reload::Live => "live",
                Reload::Restart => "restart",
            };
            let applies_to = match key.scope {
                Scope::Process => "process",
                Scope::NewConnections => "new_connections",
                Scope::NextReload => "next_reload",
            };
            Object::new()
                .text("name", key.name)
                .text("reload", reload)
                .text("applies_to", applies_to)
                .text("note", key.note)
                .finish()
        })
        .collect();
    Object::new().raw("version", "1").raw("settings", &format!("[{}]", settings.join(","))).finish()
}
