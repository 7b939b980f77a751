//! The parameters of the configuration, under Redis's names, so that its clients and tools understand them.
//!
//! Each value is the one that holds here; a parameter that does not exist here has the value by which Redis
//! says so.

use std::sync::atomic::Ordering;

use base::eviction::EvictionPolicy;
use base::number::parse_int;
use base::size::Size;
use values::hyper_log_logs::LONGEST_SPARSE;

use crate::acl_log::ACL_LOG_LENGTH;
use crate::config::DebugAccess;
use crate::key_events::EventClasses;
use crate::limits::{BACKLOG, KEEP_ALIVE};
use crate::server_state::ServerState;

/// A parameter.
pub(super) struct ConfigParameter {
    pub(super) name: &'static str,
    pub(super) show: fn(&ServerState) -> String,
    pub(super) change: ParameterChange,
    /// The option that sets it when the server starts, with a value of the same form.
    pub(super) option: Option<&'static str>,
}

/// How a parameter can be changed while the server runs.
pub(super) enum ParameterChange {
    /// Not at all.
    Never,
    /// To a whole number between these two, both included.
    Integer {
        least: i64,
        greatest: i64,
        set: fn(&ServerState, i64),
    },
    /// To a number of bytes, perhaps with a unit.
    Memory { set: fn(&ServerState, u64) },
    /// To a number of clients that the process can serve.
    Clients,
    /// To the letters of classes of events.
    EventLetters,
    /// To the name of a policy of eviction.
    Policy,
    /// To this text alone, which it has.
    Only(&'static str),
}

use ParameterChange::{Clients, EventLetters, Integer, Memory, Never, Only, Policy};

/// A change of a parameter whose value has been checked.
pub(super) enum CheckedChange {
    Integer(fn(&ServerState, i64), i64),
    Memory(fn(&ServerState, u64), u64),
    EventLetters(EventClasses),
    Policy(EvictionPolicy),
    None,
}

impl CheckedChange {
    /// Changes the parameter.
    pub(super) fn apply(&self, state: &ServerState) {
        match *self {
            CheckedChange::Integer(set, value) => set(state, value),
            CheckedChange::Memory(set, value) => set(state, value),
            CheckedChange::EventLetters(classes) => state.want_events(classes),
            CheckedChange::Policy(policy) => {
                state.change_eviction(|settings| settings.policy = policy);
            }
            CheckedChange::None => {}
        }
    }
}

impl ParameterChange {
    /// Checks a new value.
    ///
    /// # Errors
    /// Returns the reason why it is refused.
    pub(super) fn check(&self, state: &ServerState, value: &[u8]) -> Result<CheckedChange, String> {
        match *self {
            Never => Err("it does not change while the server runs".to_owned()),
            Only(text) if value == text.as_bytes() => Ok(CheckedChange::None),
            Only(text) => Err(format!("argument must be '{text}'")),
            Integer {
                least,
                greatest,
                set,
            } => {
                let value = integer(value, least, greatest)?;
                Ok(CheckedChange::Integer(set, value))
            }
            Clients => {
                let (clients, most) = (
                    integer(value, 1, u32::MAX.into())?,
                    state.config.limits.most_clients,
                );
                if clients as usize > most {
                    return Err(format!(
                        "The operating system is not able to handle the specified number of clients, try with \
                         {most}"
                    ));
                }
                let set =
                    |state: &ServerState, clients| state.settings.set_clients(clients as usize);
                Ok(CheckedChange::Integer(set, clients))
            }
            EventLetters => {
                let text = String::from_utf8_lossy(value);
                let classes = text.parse::<EventClasses>();
                let classes = classes.map_err(|error| error.to_string())?;
                Ok(CheckedChange::EventLetters(classes))
            }
            Policy => {
                let policy = String::from_utf8_lossy(value).parse::<EvictionPolicy>();
                let names = EvictionPolicy::ALL.map(EvictionPolicy::name).join(", ");
                let policy = policy
                    .map_err(|_| format!("argument(s) must be one of the following: {names}"))?;
                Ok(CheckedChange::Policy(policy))
            }
            Memory { set } => {
                let size = std::str::from_utf8(value).ok();
                let size = size.and_then(|text| text.parse::<Size>().ok());
                let size = size.ok_or("argument must be a memory value")?;
                Ok(CheckedChange::Memory(set, size.0))
            }
        }
    }
}

/// Parses a whole number between these two, both included.
fn integer(value: &[u8], least: i64, greatest: i64) -> Result<i64, String> {
    match parse_int(value) {
        None => Err("argument couldn't be parsed into an integer".to_owned()),
        Some(value) if (least..=greatest).contains(&value) => Ok(value),
        Some(_) => Err(format!(
            "argument must be between {least} and {greatest} inclusive"
        )),
    }
}

const fn fixed(name: &'static str, show: fn(&ServerState) -> String) -> ConfigParameter {
    ConfigParameter {
        name,
        show,
        change: Never,
        option: None,
    }
}

/// Returns a limit of Redis's small encodings, which can be set without effect: values here do not depend on it.
const fn of_encodings(name: &'static str, show: fn(&ServerState) -> String) -> ConfigParameter {
    of_nodes(name, 0, show)
}

/// As [`of_encodings`], with the least value: negative ones are sizes of a list's nodes in bytes.
const fn of_nodes(
    name: &'static str,
    least: i64,
    show: fn(&ServerState) -> String,
) -> ConfigParameter {
    ConfigParameter {
        name,
        show,
        change: Integer {
            least,
            greatest: i64::MAX,
            set: |_, _| {},
        },
        option: None,
    }
}

fn yes_or_no(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// All parameters, in the order of their names.
pub(super) const PARAMETERS: &[ConfigParameter] = &[
    fixed("acllog-max-len", |_| ACL_LOG_LENGTH.to_string()),
    fixed("activedefrag", |_| yes_or_no(false)),
    fixed("appendfsync", |state| {
        let durable = state.config.data.is_some();
        if durable { "always" } else { "no" }.to_owned()
    }),
    fixed("appendonly", |state| yes_or_no(state.config.data.is_some())),
    fixed("bind", |state| state.config.listen.ip().to_string()),
    fixed("client-output-buffer-limit", |state| {
        let limits = &state.config.limits;
        format!(
            "normal {} 0 0 slave 0 0 0 pubsub {} 0 0",
            limits.output, limits.subscriber_output
        )
    }),
    fixed("client-query-buffer-limit", |state| {
        state.config.limits.query_buffer.to_string()
    }),
    fixed("cluster-enabled", |state| {
        yes_or_no(state.config.cluster.is_some())
    }),
    fixed("daemonize", |_| yes_or_no(false)),
    fixed("databases", |state| state.config.databases.to_string()),
    fixed("dir", |state| {
        let dir = state.config.data.as_ref();
        dir.map_or_else(String::new, |dir| dir.display().to_string())
    }),
    fixed("enable-debug-command", |state| {
        let access = match state.config.debug_access {
            DebugAccess::No => "no",
            DebugAccess::Local => "local",
            DebugAccess::Yes => "yes",
        };
        access.to_owned()
    }),
    of_encodings("hash-max-listpack-entries", |_| "128".to_owned()),
    of_encodings("hash-max-listpack-value", |_| "64".to_owned()),
    of_encodings("hash-max-ziplist-entries", |_| "128".to_owned()),
    of_encodings("hash-max-ziplist-value", |_| "64".to_owned()),
    // The bytes of a value must not depend on the node that writes it.
    ConfigParameter {
        name: "hll-sparse-max-bytes",
        show: |_| LONGEST_SPARSE.to_string(),
        change: Integer {
            least: LONGEST_SPARSE as i64,
            greatest: LONGEST_SPARSE as i64,
            set: |_, _| {},
        },
        option: None,
    },
    fixed("io-threads", |state| state.config.threads.to_string()),
    fixed("io-threads-do-reads", |_| yes_or_no(true)),
    ConfigParameter {
        name: "latency-monitor-threshold",
        show: |state| state.latency.threshold_ms().to_string(),
        change: Integer {
            least: 0,
            greatest: i64::MAX,
            set: |state, ms| state.latency.set_threshold_ms(ms as u64),
        },
        option: Some("latency-monitor-threshold"),
    },
    fixed("latency-tracking", |_| yes_or_no(true)),
    fixed("latency-tracking-info-percentiles", |_| {
        "50 99 99.9".to_owned()
    }),
    ConfigParameter {
        name: "lfu-decay-time",
        show: |state| state.partition.eviction().decay_minutes.to_string(),
        change: Integer {
            least: 0,
            greatest: i32::MAX as i64,
            set: |state, minutes| {
                state.change_eviction(|settings| settings.decay_minutes = minutes as u32);
            },
        },
        option: Some("lfu-decay-time"),
    },
    ConfigParameter {
        name: "lfu-log-factor",
        show: |state| state.partition.eviction().log_factor.to_string(),
        change: Integer {
            least: 0,
            greatest: i32::MAX as i64,
            set: |state, factor| {
                state.change_eviction(|settings| settings.log_factor = factor as u32);
            },
        },
        option: Some("lfu-log-factor"),
    },
    of_encodings("list-compress-depth", |_| "0".to_owned()),
    of_nodes("list-max-listpack-size", -5, |_| "-2".to_owned()),
    of_nodes("list-max-ziplist-size", -5, |_| "-2".to_owned()),
    fixed("logfile", |_| String::new()),
    ConfigParameter {
        name: "maxclients",
        show: |state| state.settings.clients().to_string(),
        change: Clients,
        option: Some("max-clients"),
    },
    ConfigParameter {
        name: "maxmemory",
        show: |state| state.memory.limit.load(Ordering::Relaxed).to_string(),
        change: Memory {
            set: ServerState::limit_memory,
        },
        option: Some("maxmemory"),
    },
    fixed("maxmemory-clients", |state| {
        state.config.limits.in_flight.to_string()
    }),
    ConfigParameter {
        name: "maxmemory-policy",
        show: |state| state.partition.eviction().policy.to_string(),
        change: Policy,
        option: Some("maxmemory-policy"),
    },
    ConfigParameter {
        name: "maxmemory-samples",
        show: |state| state.partition.eviction().samples.to_string(),
        change: Integer {
            least: 1,
            greatest: 64,
            set: |state, samples| {
                state.change_eviction(|settings| settings.samples = samples as usize);
            },
        },
        option: Some("maxmemory-samples"),
    },
    ConfigParameter {
        name: "notify-keyspace-events",
        show: |state| state.key_events.classes().to_string(),
        change: EventLetters,
        option: Some("notify-keyspace-events"),
    },
    fixed("port", |state| state.port.to_string()),
    fixed("proto-max-bulk-len", |state| {
        state.config.limits.request.bulk.to_string()
    }),
    fixed("protected-mode", |state| yes_or_no(!state.config.insecure)),
    fixed("replica-read-only", |_| yes_or_no(true)),
    fixed("requirepass", |state| {
        state.config.password.clone().unwrap_or_default()
    }),
    ConfigParameter {
        name: "save",
        show: |_| String::new(),
        change: Only(""),
        option: None,
    },
    of_encodings("set-max-intset-entries", |_| "512".to_owned()),
    of_encodings("set-max-listpack-entries", |_| "128".to_owned()),
    of_encodings("set-max-listpack-value", |_| "64".to_owned()),
    fixed("slave-read-only", |_| yes_or_no(true)),
    ConfigParameter {
        name: "slowlog-log-slower-than",
        show: |state| state.slow_log.slower_than_us().to_string(),
        change: Integer {
            least: -1,
            greatest: i64::MAX,
            set: |state, us| state.slow_log.set_slower_than_us(us),
        },
        option: Some("slowlog-log-slower-than"),
    },
    ConfigParameter {
        name: "slowlog-max-len",
        show: |state| state.slow_log.most().to_string(),
        change: Integer {
            least: 0,
            greatest: i64::MAX,
            set: |state, most| state.slow_log.set_most(most as usize),
        },
        option: Some("slowlog-max-len"),
    },
    fixed("stream-node-max-bytes", |_| "4096".to_owned()),
    ConfigParameter {
        name: "stream-node-max-entries",
        show: |_| "100".to_owned(),
        // Only to the number that it has.
        change: Integer {
            least: 100,
            greatest: 100,
            set: |_, _| {},
        },
        option: None,
    },
    fixed("tcp-backlog", |_| BACKLOG.to_string()),
    fixed("tcp-keepalive", |_| KEEP_ALIVE.as_secs().to_string()),
    ConfigParameter {
        name: "timeout",
        show: |state| {
            let idle = state.settings.idle();
            idle.map_or(0, |idle| idle.as_secs()).to_string()
        },
        change: Integer {
            least: 0,
            greatest: i32::MAX as i64,
            set: |state, secs| state.limit_idle_time(secs as u64),
        },
        option: Some("timeout"),
    },
    fixed("tls-port", |state| state.tls_port.to_string()),
    ConfigParameter {
        name: "tracking-table-max-keys",
        show: |state| state.tracking.keys.most().to_string(),
        change: Integer {
            least: 0,
            greatest: i64::MAX,
            set: |state, most| state.limit_tracked_keys(most as usize),
        },
        option: None,
    },
    fixed("unixsocket", |_| String::new()),
    of_encodings("zset-max-listpack-entries", |_| "128".to_owned()),
    of_encodings("zset-max-listpack-value", |_| "64".to_owned()),
    of_encodings("zset-max-ziplist-entries", |_| "128".to_owned()),
    of_encodings("zset-max-ziplist-value", |_| "64".to_owned()),
];
