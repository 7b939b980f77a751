//! The import of a file.

use std::time::Instant;

use values::dump::RdbError;

use super::copying::{self, CopyPlan, Counts, DeadlineTreatment};
use super::options::ImportOptions;
use super::sending::Sender;
use super::source;
use super::survey;
use super::target::Target;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;

/// Imports the file.
///
/// # Errors
/// The text says why it has ended early, and where it can go on.
pub(super) fn run(options: &ImportOptions) -> Result<(), String> {
    let stop = StopRequest::on_signal()?;
    let begun = Instant::now();
    let path = &options.source;
    let continue_at = match &options.continue_at {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| "--continue-at: of a file it is the number of a byte".to_owned())?,
    };
    let survey = survey::read(path, continue_at, &stop)?;
    let target = Target::connect(&options.to, options.credentials.open()?)?;
    if !options.replace && continue_at == 0 {
        target.check_empty(&survey.databases)?;
    }
    let sender = Sender::start(target, options.connections, options.patience);
    let (mut counts, mut unsent) = (Counts::default(), continue_at);
    let plan = CopyPlan {
        deadlines: DeadlineTreatment::Kept,
        continue_at,
        keys: Some(survey.keys),
    };
    let sent = source::open(path).and_then(|mut reader| {
        let mut progress = ProgressLine::new(format!("{}: keys", path.display()));
        let told = |error: &RdbError| source::refused(path, error);
        let around = (&stop, &mut progress);
        copying::copy(
            &mut reader,
            &plan,
            &sender,
            around,
            &mut counts,
            &mut unsent,
            told,
        )
    });
    // The batches that were given are sent to their end.
    let (pending, refused) = sender.finish();
    let failure = match (refused.or(sent.err()), pending) {
        (Some(failure), _) => failure,
        (None, Some(_)) => "a thread that sends has panicked".to_owned(),
        (None, None) => {
            counts.tell("imported", begun);
            return Ok(());
        }
    };
    let position = pending.map_or(unsent, |pending| pending.min(unsent));
    Err(format!(
        "{failure}\nEverything before byte {position} of the file is imported. To go on there, add --continue-at \
         {position}"
    ))
}
