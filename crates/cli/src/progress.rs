//! Shows the progress of work on standard error: a bar on a terminal, otherwise a line at
//! intervals.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// The shortest interval between lines.
const TELLING: Duration = Duration::from_secs(10);

/// Shows the progress of work.
pub(crate) struct ProgressLine {
    what: String,
    bar: Option<ProgressBar>,
    told: Instant,
}

impl ProgressLine {
    /// Creates it; `what` is done, for example "lineitem: rows".
    pub(crate) fn new(what: String) -> ProgressLine {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length();
            bar.set_style(style("{msg} {human_pos} {per_sec}"));
            bar.set_message(what.clone());
            bar
        });
        ProgressLine {
            what,
            bar,
            told: Instant::now(),
        }
    }
}

/// Shows a text that changes: on a terminal in place, otherwise as a line at intervals.
pub(crate) struct StatusLine {
    bar: Option<ProgressBar>,
    told: Option<Instant>,
}

impl StatusLine {
    pub(crate) fn new() -> StatusLine {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length();
            bar.set_style(style("{msg}"));
            bar
        });
        StatusLine { bar, told: None }
    }

    /// Shows the text, if it is time.
    pub(crate) fn show(&mut self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
            bar.tick();
        } else if self.told.is_none_or(|told| told.elapsed() >= TELLING) {
            eprintln!("{text}");
            self.told = Some(Instant::now());
        }
    }

    /// Writes a line that stays.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a sensible template")
}

impl pages::Progress for ProgressLine {
    fn done(&mut self, done: u64, of: Option<u64>) {
        if let Some(bar) = &self.bar {
            if let Some(of) = of {
                if bar.length().is_none() {
                    bar.set_style(style(
                        "{msg} {bar:24} {human_pos}/{human_len} {per_sec} {eta:>5}",
                    ));
                }
                bar.set_length(of.max(done));
            }
            bar.set_position(done);
        } else if self.told.elapsed() >= TELLING {
            let of = of.map_or_else(String::new, |of| format!(" of {}", HumanCount(of)));
            eprintln!("{} {}{of}", self.what, HumanCount(done));
            self.told = Instant::now();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
