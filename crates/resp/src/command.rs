//! Requests in the form that a client writes.

use crate::writer::push_header;

/// Writes a command as a multibulk request: its name and its arguments.
pub fn write_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    push_header(out, b'*', args.len());
    for arg in args {
        push_header(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_list_of_bulk_strings() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"GET", b"", b"a\r\nb"]);
        assert_eq!(out, b"*3\r\n$3\r\nGET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    }
}
