//! `CLIENT TRACKING` and its kin: client-side caching.

use channels::client_tracking::{
    TrackedReads, TrackingOptions, TrackingRefusal, choose_caching, parse_client_tracking,
    redirection, write_tracking_info,
};
use resp::Args;

use crate::read_tracking::{end_tracking, tracked};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

pub(super) fn client_tracking(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) {
    let exists = |id| context.shared.clients.get(id).is_some();
    let done = parse_client_tracking(args, exists).and_then(|options| match options {
        Some(options) => begin(context, session, options),
        None => {
            end_tracking(context, session);
            Ok(())
        }
    });
    answer(session, done);
}

fn answer(session: &mut ClientSession, done: Result<(), TrackingRefusal>) {
    match done {
        Ok(()) => session.writer().ok(),
        Err(text) => session.writer().error_bytes(&text),
    }
}

fn begin(
    context: &RuntimeContext,
    session: &mut ClientSession,
    mut options: TrackingOptions,
) -> Result<(), TrackingRefusal> {
    let reads = options.check(session.tracking.as_deref())?;
    let client = tracked(session, options.ignores_own());
    let table = &context.shared.tracking;
    let before = session.tracking.take();
    if before.is_some() {
        table.prefixes.change().add(client, &options.prefixes);
    } else {
        table.begin(client, &options.prefixes);
        context.shared.update_listening();
        let shared = &context.shared;
        let announces_all = match context.in_block {
            true => shared.partition.announces_all(),
            false => shared.await_announcements(),
        };
        if reads == TrackedReads::Prefixed && !announces_all {
            table.set_misses_commits(true);
            shared.signals[0].wake();
        }
    }
    let tracking = options.apply(before.map(|own| *own), reads);
    session.client.note_tracking(Some(&tracking));
    session.tracking = Some(Box::new(tracking));
    Ok(())
}

pub(super) fn client_caching(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let done = choose_caching(session.tracking.as_deref_mut(), args.at(2));
    answer(session, done);
}

pub(super) fn client_trackinginfo(
    _: &mut RuntimeContext,
    session: &mut ClientSession,
    _: Args<'_>,
) {
    let tracking = session.tracking.take();
    write_tracking_info(tracking.as_deref(), &mut session.writer());
    session.tracking = tracking;
}

pub(super) fn client_getredir(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let redirect = redirection(session.tracking.as_deref());
    session.writer().int(redirect);
}
