//! Client-side caching (`CLIENT TRACKING`), as far as one client has it: its options, and the news as RESP.
//!
//! | frame | fields |
//! |---|---|
//! | news in RESP3, a push | `invalidate`, the keys; null: all keys |
//! | news for a client of RESP2 that gets them in the place of another one, a message | `message`, `__redis__:invalidate`, the keys; null: all keys |
//! | the client that got the news is gone, a push | `tracking-redir-broken`, its number |

use std::borrow::Cow;
use std::sync::Arc;

use base::number::parse_int;
use resp::{Args, Protocol, Writer};

/// The channel on which clients that speak the older protocol get the news.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// The most bytes of an argument that an error repeats.
const SHOWN: usize = 128;

/// The text of an error.
pub type TrackingRefusal = Cow<'static, [u8]>;

/// Keys that have changed, as one notice has them; `None`: all keys.
pub type ChangedKeys = Option<Arc<[Box<[u8]>]>>;

/// The keys of which a client gets news.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackedReads {
    /// Those that it reads.
    All,
    /// Those that it reads right behind `CLIENT CACHING YES`.
    OptIn,
    /// Those that it reads, but right behind `CLIENT CACHING NO`.
    OptOut,
    /// Those with these prefixes, read or not.
    Prefixed,
}

/// What one client wants to be sent.
#[derive(Debug)]
pub struct ClientTracking {
    /// The keys of which it gets news.
    pub reads: TrackedReads,
    /// The client that gets the news in its place.
    pub redirect: Option<u64>,
    /// `true` if that client has gone.
    pub is_broken: bool,
    /// `true` if it wants no news of its own changes.
    pub ignores_own: bool,
    /// The prefixes of the keys, for [`TrackedReads::Prefixed`].
    pub prefixes: Vec<Box<[u8]>>,
    /// The choice for the next command (`CLIENT CACHING`).
    pub caching: Option<bool>,
}

/// The options of `CLIENT TRACKING`.
#[derive(Default, Debug)]
pub struct TrackingOptions {
    redirect: Option<u64>,
    all: bool,
    opt_in: bool,
    opt_out: bool,
    ignores_own: bool,
    /// New prefixes.
    pub prefixes: Vec<Box<[u8]>>,
}

fn refused<T>(text: &'static str) -> Result<T, TrackingRefusal> {
    Err(Cow::Borrowed(text.as_bytes()))
}

const SYNTAX: &str = "ERR syntax error";

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Reads `CLIENT TRACKING`. Returns `None` if it turns client-side caching off. `exists` tells if there is a
/// client of this number.
///
/// # Errors
/// Returns the text for the client if the command is malformed, or names a client that does not exist.
pub fn parse_client_tracking(
    args: Args<'_>,
    exists: impl Fn(u64) -> bool,
) -> Result<Option<TrackingOptions>, TrackingRefusal> {
    let options = TrackingOptions::parse(args, exists)?;
    match args.get(2) {
        Some(word) if is(word, "on") => Ok(Some(options)),
        Some(word) if is(word, "off") => Ok(None),
        _ => refused(SYNTAX),
    }
}

impl TrackingOptions {
    fn parse(
        args: Args<'_>,
        exists: impl Fn(u64) -> bool,
    ) -> Result<TrackingOptions, TrackingRefusal> {
        let mut options = TrackingOptions::default();
        let mut at = 3;
        while let Some(option) = args.get(at) {
            match args.get(at + 1) {
                Some(id) if is(option, "redirect") => {
                    at += 1;
                    if options.redirect.is_some() {
                        return refused("ERR A client can only redirect to a single other client");
                    }
                    let Some(id) = parse_int(id) else {
                        return refused("ERR value is not an integer or out of range");
                    };
                    if !exists(id as u64) {
                        return refused("ERR The client ID you want redirect to does not exist");
                    }
                    options.redirect = Some(id as u64);
                }
                Some(prefix) if is(option, "prefix") => {
                    at += 1;
                    options.prefixes.push(prefix.into());
                }
                _ if is(option, "bcast") => options.all = true,
                _ if is(option, "optin") => options.opt_in = true,
                _ if is(option, "optout") => options.opt_out = true,
                _ if is(option, "noloop") => options.ignores_own = true,
                _ => return refused(SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Checks the options against what the client has chosen before. Returns the keys of which it gets news
    /// from now on. Adds the empty prefix if it wants the news of all keys.
    ///
    /// # Errors
    /// Returns the text for the client if options contradict each other, or the earlier ones.
    pub fn check(
        &mut self,
        before: Option<&ClientTracking>,
    ) -> Result<TrackedReads, TrackingRefusal> {
        if !self.all && !self.prefixes.is_empty() {
            return refused("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if before.is_some_and(|own| (own.reads == TrackedReads::Prefixed) != self.all) {
            return refused(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
            );
        }
        if self.all && (self.opt_in || self.opt_out) {
            return refused("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.opt_in && self.opt_out {
            return refused("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let reads = match (self.all, self.opt_in, self.opt_out) {
            (true, ..) => TrackedReads::Prefixed,
            (_, true, _) => TrackedReads::OptIn,
            (.., true) => TrackedReads::OptOut,
            _ => TrackedReads::All,
        };
        let switches = |own: &ClientTracking| {
            let opposite = [TrackedReads::OptIn, TrackedReads::OptOut];
            own.reads != reads && opposite.contains(&own.reads) && opposite.contains(&reads)
        };
        if before.is_some_and(switches) {
            return refused(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
            );
        }
        if self.all {
            if self.prefixes.is_empty() && before.is_none() {
                self.prefixes.push(Box::default());
            }
            let known = before.map_or(&[][..], |own| &own.prefixes);
            check_prefixes(known, &self.prefixes)?;
        }
        Ok(reads)
    }

    /// Returns what the client wants from now on. `before` is what it has chosen before, `reads` the result
    /// of [`TrackingOptions::check`].
    #[must_use]
    pub fn apply(self, before: Option<ClientTracking>, reads: TrackedReads) -> ClientTracking {
        let mut prefixes = before.map(|own| own.prefixes).unwrap_or_default();
        prefixes.extend(self.prefixes);
        ClientTracking {
            reads,
            redirect: self.redirect,
            is_broken: false,
            ignores_own: self.ignores_own,
            prefixes,
            caching: None,
        }
    }

    /// Returns `true` if the client wants no news of its own changes.
    #[must_use]
    pub fn ignores_own(&self) -> bool {
        self.ignores_own
    }
}

fn shown(prefix: &[u8]) -> &[u8] {
    &prefix[..prefix.len().min(SHOWN)]
}

/// Refuses prefixes that overlap.
fn check_prefixes(known: &[Box<[u8]>], new: &[Box<[u8]>]) -> Result<(), TrackingRefusal> {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    for (at, prefix) in new.iter().enumerate() {
        let old = known.iter().find(|other| overlap(prefix, other));
        let given = new[at + 1..].iter().find(|other| overlap(prefix, other));
        let (what, other) = match (old, given) {
            (Some(other), _) => ("an existing", other),
            (None, Some(other)) => ("another provided", other),
            (None, None) => continue,
        };
        let text = [
            b"ERR Prefix '",
            shown(prefix),
            b"' overlaps with ",
            what.as_bytes(),
            b" prefix '",
            shown(other),
            b"'. Prefixes for a single client must not overlap.",
        ];
        return Err(Cow::Owned(text.concat()));
    }
    Ok(())
}

impl ClientTracking {
    /// Returns `true` if the keys that the next command reads are tracked.
    #[must_use]
    pub fn tracks_reads(&self) -> bool {
        match self.reads {
            TrackedReads::All => true,
            TrackedReads::OptIn => self.caching == Some(true),
            TrackedReads::OptOut => self.caching != Some(false),
            TrackedReads::Prefixed => false,
        }
    }
}

/// Executes `CLIENT CACHING` for a client with this client-side caching.
///
/// # Errors
/// Returns the text for the client if it may not choose so.
pub fn choose_caching(
    tracking: Option<&mut ClientTracking>,
    choice: &[u8],
) -> Result<(), TrackingRefusal> {
    let Some(tracking) = tracking else {
        return refused(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    if is(choice, "yes") {
        if tracking.reads != TrackedReads::OptIn {
            return refused(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
        tracking.caching = Some(true);
    } else if is(choice, "no") {
        if tracking.reads != TrackedReads::OptOut {
            return refused(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
        tracking.caching = Some(false);
    } else {
        return refused(SYNTAX);
    }
    Ok(())
}

/// Writes the reply to `CLIENT TRACKINGINFO`.
pub fn write_tracking_info(own: Option<&ClientTracking>, writer: &mut Writer<'_>) {
    let reads = own.map(|own| own.reads);
    let is_of = |wanted| reads == Some(wanted);
    let caching = own.and_then(|own| own.caching);
    let flags = [
        (own.is_none(), "off"),
        (own.is_some(), "on"),
        (is_of(TrackedReads::Prefixed), "bcast"),
        (is_of(TrackedReads::OptIn), "optin"),
        (caching == Some(true), "caching-yes"),
        (is_of(TrackedReads::OptOut), "optout"),
        (caching == Some(false), "caching-no"),
        (own.is_some_and(|own| own.ignores_own), "noloop"),
        (own.is_some_and(|own| own.is_broken), "broken_redirect"),
    ];
    let flags = flags.into_iter();
    let flags: Vec<&str> = flags
        .filter_map(|(set, flag)| set.then_some(flag))
        .collect();
    let prefixes = own.map_or(&[][..], |own| &own.prefixes);
    writer.map(3);
    writer.bulk(b"flags");
    writer.set(flags.len());
    flags.iter().for_each(|flag| writer.bulk(flag.as_bytes()));
    writer.bulk(b"redirect");
    writer.int(redirection(own));
    writer.bulk(b"prefixes");
    writer.array(prefixes.len());
    prefixes.iter().for_each(|prefix| writer.bulk(prefix));
}

/// Returns the number of the client that gets the news, as `CLIENT GETREDIR` has it: 0 if that is the client
/// itself, -1 if it gets none.
#[must_use]
pub fn redirection(own: Option<&ClientTracking>) -> i64 {
    own.map_or(-1, |own| own.redirect.unwrap_or(0) as i64)
}

/// Writes the news that keys have changed, in the form in which the client understands it; nothing if it
/// understands none. `None`: all keys. `redirected` tells if they are keys of another client, `is_subscriber`
/// if the client subscribes to anything.
pub fn write_invalidation(
    keys: Option<&[Box<[u8]>]>,
    redirected: bool,
    is_subscriber: bool,
    writer: &mut Writer<'_>,
) {
    if writer.protocol() == Protocol::Resp3 {
        writer.push(2);
        writer.bulk(b"invalidate");
    } else if redirected && is_subscriber {
        writer.push(3);
        writer.bulk(b"message");
        writer.bulk(CHANNEL);
    } else {
        return;
    }
    match keys {
        Some(keys) => {
            writer.array(keys.len());
            keys.iter().for_each(|key| writer.bulk(key));
        }
        None => writer.null_array(),
    }
}

/// Writes that the client which got the news is gone, if the protocol has a form for that.
pub fn write_broken_redirection(target: u64, writer: &mut Writer<'_>) {
    if writer.protocol() == Protocol::Resp3 {
        writer.push(2);
        writer.bulk(b"tracking-redir-broken");
        writer.int(target as i64);
    }
}
