//! Prints what the run of a short script costs, without the host's work.

use std::sync::Arc;
use std::time::Instant;

use kumiki_scripts::{Answer, Interpreter, Options, Script, ScriptCall, Step};
use resp::Protocol;

fn main() {
    const RUNS: u32 = 1_000_000;
    for body in [
        "return 1",
        "return redis.call('incr', KEYS[1])",
        "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])",
        "local n = 0 for i = 1, 1000 do n = n + i end return n",
    ] {
        let mut interpreter = Interpreter::new(Options::default()).expect("an interpreter");
        let script = Arc::new(Script::new(body.as_bytes()).expect("a script"));
        let start = Instant::now();
        for _ in 0..RUNS {
            let mut step = interpreter.start(ScriptCall {
                script: &script,
                keys: &[b"counter"],
                arguments: &[b"value"],
                protocol: Protocol::Resp2,
            });
            while !matches!(step, Step::Done(_)) {
                let is_call = matches!(step, Step::Call { .. });
                step = interpreter.resume(if is_call {
                    Answer::Reply(b":1\r\n")
                } else {
                    Answer::Continue
                });
            }
        }
        let nanoseconds = start.elapsed().as_nanos() / u128::from(RUNS);
        println!("{nanoseconds:6} ns  {body}");
    }
}
