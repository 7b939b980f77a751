//! `CLIENT TRACKING` and its kin: client-side caching.

use resp::Args;

use super::arguments::{int, is};
use crate::read_tracking::{end_tracking, tracked};
use crate::refusal::{Refusal, shown};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::tracking::{ClientTracking, TrackedReads};

/// The options of `CLIENT TRACKING`.
#[derive(Default)]
struct TrackingOptions {
    redirect: Option<u64>,
    all: bool,
    opt_in: bool,
    opt_out: bool,
    ignores_own: bool,
    prefixes: Vec<Box<[u8]>>,
}

pub(super) fn client_tracking(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) {
    let done = parse(context, args).and_then(|options| {
        if is(args.at(2), "on") {
            begin(context, session, options)
        } else if is(args.at(2), "off") {
            end_tracking(context, session);
            Ok(())
        } else {
            Err(Refusal::Syntax)
        }
    });
    match done {
        Ok(()) => session.writer().ok(),
        Err(refusal) => refusal.write("client|tracking", &mut session.writer()),
    }
}

fn parse(context: &RuntimeContext, args: Args<'_>) -> Result<TrackingOptions, Refusal> {
    let mut options = TrackingOptions::default();
    let mut at = 3;
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            Some(id) if is(option, "redirect") => {
                at += 1;
                if options.redirect.is_some() {
                    let text = "ERR A client can only redirect to a single other client";
                    return Err(Refusal::Text(text));
                }
                let id = int(id)? as u64;
                if context.shared.clients.get(id).is_none() {
                    let text = "ERR The client ID you want redirect to does not exist";
                    return Err(Refusal::Text(text));
                }
                options.redirect = Some(id);
            }
            Some(prefix) if is(option, "prefix") => {
                at += 1;
                options.prefixes.push(prefix.into());
            }
            _ if is(option, "bcast") => options.all = true,
            _ if is(option, "optin") => options.opt_in = true,
            _ if is(option, "optout") => options.opt_out = true,
            _ if is(option, "noloop") => options.ignores_own = true,
            _ => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    Ok(options)
}

fn begin(
    context: &RuntimeContext,
    session: &mut ClientSession,
    mut options: TrackingOptions,
) -> Result<(), Refusal> {
    if !options.all && !options.prefixes.is_empty() {
        let text = "ERR PREFIX option requires BCAST mode to be enabled";
        return Err(Refusal::Text(text));
    }
    let before = session.tracking.as_deref();
    if before.is_some_and(|own| (own.reads == TrackedReads::Prefixed) != options.all) {
        return Err(Refusal::Text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    if options.all && (options.opt_in || options.opt_out) {
        return Err(Refusal::Text(
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        ));
    }
    if options.opt_in && options.opt_out {
        let text = "ERR You can't specify both OPTIN mode and OPTOUT mode";
        return Err(Refusal::Text(text));
    }
    let reads = match (options.all, options.opt_in, options.opt_out) {
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
        return Err(Refusal::Text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
        ));
    }
    if options.all {
        if options.prefixes.is_empty() && before.is_none() {
            options.prefixes.push(Box::default());
        }
        let known = before.map_or(&[][..], |own| &own.prefixes);
        check_prefixes(known, &options.prefixes)?;
    }
    install(context, session, reads, options);
    Ok(())
}

/// Refuses prefixes that overlap.
fn check_prefixes(known: &[Box<[u8]>], new: &[Box<[u8]>]) -> Result<(), Refusal> {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    for (at, prefix) in new.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| overlap(prefix, other)) {
            let text = [
                b"ERR Prefix '",
                shown(prefix),
                b"' overlaps with an existing prefix '",
                shown(other),
                b"'. Prefixes for a single client must not overlap.",
            ];
            return Err(Refusal::Owned(text.concat()));
        }
        if let Some(other) = new[at + 1..].iter().find(|other| overlap(prefix, other)) {
            let text = [
                b"ERR Prefix '",
                shown(prefix),
                b"' overlaps with another provided prefix '",
                shown(other),
                b"'. Prefixes for a single client must not overlap.",
            ];
            return Err(Refusal::Owned(text.concat()));
        }
    }
    Ok(())
}

fn install(
    context: &RuntimeContext,
    session: &mut ClientSession,
    reads: TrackedReads,
    options: TrackingOptions,
) {
    let client = tracked(session, options.ignores_own);
    let table = &context.shared.tracking;
    let before = session.tracking.take();
    let mut prefixes = Vec::new();
    match before {
        Some(own) => {
            table.add_prefixes(client, &options.prefixes);
            prefixes = own.prefixes;
        }
        None => {
            table.begin(client, &options.prefixes);
            context.shared.update_listening();
            if !context.in_block {
                context.shared.await_announcements();
            }
        }
    }
    prefixes.extend(options.prefixes);
    let tracking = ClientTracking {
        reads,
        redirect: options.redirect,
        is_broken: false,
        ignores_own: options.ignores_own,
        prefixes,
        caching: None,
    };
    session.client.note_tracking(Some(&tracking));
    session.tracking = Some(Box::new(tracking));
}

pub(super) fn client_caching(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let Some(tracking) = &mut session.tracking else {
        return session.writer().error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    let (reads, choice) = (tracking.reads, args.at(2));
    if is(choice, "yes") {
        if reads != TrackedReads::OptIn {
            let text =
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
            return session.writer().error(text);
        }
        tracking.caching = Some(true);
    } else if is(choice, "no") {
        if reads != TrackedReads::OptOut {
            let text =
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
            return session.writer().error(text);
        }
        tracking.caching = Some(false);
    } else {
        return Refusal::Syntax.write("client|caching", &mut session.writer());
    }
    session.writer().ok();
}

pub(super) fn client_trackinginfo(
    _: &mut RuntimeContext,
    session: &mut ClientSession,
    _: Args<'_>,
) {
    let tracking = session.tracking.take();
    let own = tracking.as_deref();
    let reads = own.map(|own| own.reads);
    let is_of = |wanted| reads == Some(wanted);
    let flags = [
        (own.is_none(), "off"),
        (own.is_some(), "on"),
        (is_of(TrackedReads::Prefixed), "bcast"),
        (is_of(TrackedReads::OptIn), "optin"),
        (
            own.is_some_and(|own| own.caching == Some(true)),
            "caching-yes",
        ),
        (is_of(TrackedReads::OptOut), "optout"),
        (
            own.is_some_and(|own| own.caching == Some(false)),
            "caching-no",
        ),
        (own.is_some_and(|own| own.ignores_own), "noloop"),
        (own.is_some_and(|own| own.is_broken), "broken_redirect"),
    ];
    let flags: Vec<&str> = flags
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .collect();
    let redirect = own.map_or(-1, |own| own.redirect.unwrap_or(0) as i64);
    let prefixes = own.map_or(&[][..], |own| &own.prefixes);
    let mut writer = session.writer();
    writer.map(3);
    writer.bulk(b"flags");
    writer.set(flags.len());
    flags.iter().for_each(|flag| writer.bulk(flag.as_bytes()));
    writer.bulk(b"redirect");
    writer.int(redirect);
    writer.bulk(b"prefixes");
    writer.array(prefixes.len());
    prefixes.iter().for_each(|prefix| writer.bulk(prefix));
    session.tracking = tracking;
}

pub(super) fn client_getredir(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let own = session.tracking.as_ref();
    let redirect = own.map_or(-1, |own| own.redirect.unwrap_or(0) as i64);
    session.writer().int(redirect);
}
