//! The standard output of commands.

use std::fmt;
use std::io::{ErrorKind, Write};

/// Writes to standard output. If its reader has gone, as behind `| head`, the process ends; if it
/// cannot be written, the process ends with an error.
pub(crate) fn write_out(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("kumiki: the output cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

/// [`write_out`], with the arguments of [`format!`] and no end of a line.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::write_out(format_args!($($text)*))
    };
}

/// [`write_out`], with the arguments of [`format!`], and the end of the line.
macro_rules! say_line {
    ($($text:tt)*) => {
        $crate::output::write_out(format_args!("{}\n", format_args!($($text)*)))
    };
}

pub(crate) use {say, say_line};
