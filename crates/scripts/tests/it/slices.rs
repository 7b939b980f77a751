use kumiki_scripts::{Answer, Interpreter, Script, ScriptOutcome, Step};
use resp::Protocol;

use crate::host::{finish, interpreter, run_in, start};

const KILLED: &str = "ERR Script killed by user with SCRIPT KILL.";

/// Kills a script at its first slice that is over, and returns its outcome.
fn kill(interpreter: &mut Interpreter, body: &str) -> ScriptOutcome {
    match start(interpreter, body.as_bytes(), Protocol::Resp2) {
        Step::Slice => match interpreter.resume(Answer::Kill(KILLED)) {
            Step::Done(outcome) => outcome,
            step => panic!("{body}: {step:?}"),
        },
        step => panic!("{body}: {step:?}"),
    }
}

#[test]
fn a_loop_is_interrupted_and_continues() {
    let mut interpreter = interpreter(1 << 20);
    let body = b"local n = 0 for i = 1, 1e7 do n = n + 1 end return n";
    let step = start(&mut interpreter, body, Protocol::Resp2);
    assert!(matches!(step, Step::Slice), "{step:?}");
    assert!(interpreter.is_running());
    assert_eq!(finish(&mut interpreter, step).reply, b":10000000\r\n");
    assert!(!interpreter.is_running());
}

#[test]
fn a_killed_script_catches_nothing() {
    let mut interpreter = interpreter(16 << 20);
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do end end while true do xpcall(f, f) end",
        "while true do pcall(pcall, function() while true do end end) end",
        "local function f() while true do end end \
         while true do coroutine.resume(coroutine.create(f)) end",
        "local function f() while true do end end \
         local function g() while true do coroutine.resume(coroutine.create(f)) end end \
         while true do pcall(coroutine.wrap(g)) end",
        "local t = {} for i = 1, 100 do t[i] = i end \
         while true do pcall(table.sort, t, function(a, b) for i = 1, 1e9 do end return a < b end) end",
        "while true do pcall(string.gsub, ('x'):rep(1000), '.', function() for i = 1, 1e9 do end end) end",
        "local t = setmetatable({}, {__index = function() while true do end end}) \
         while true do pcall(function() return t.x end) end",
        "while true do load(function() while true do end end) end",
    ] {
        let outcome = kill(&mut interpreter, body);
        let reply = String::from_utf8(outcome.reply).unwrap();
        assert!(
            outcome.is_error && reply.starts_with(&format!("-{KILLED} script: ")),
            "{reply}"
        );
        assert!(reply.ends_with(", on @user_script:1.\r\n"), "{reply}");
    }
    assert_eq!(run_in(&mut interpreter, "return 1"), ":1\r\n");
}

#[test]
fn a_script_is_killed_while_it_waits_for_a_reply() {
    let mut interpreter = interpreter(1 << 20);
    let body = b"while true do pcall(redis.call, 'get', 'x') end";
    let step = start(&mut interpreter, body, Protocol::Resp2);
    assert!(matches!(step, Step::Call { .. }), "{step:?}");
    let step = interpreter.resume(Answer::Kill(KILLED));
    assert!(matches!(step, Step::Done(_)), "{step:?}");
}

#[test]
fn commands_are_called_within_threads() {
    let mut interpreter = interpreter(1 << 20);
    let body = "local co = coroutine.wrap(function() \
                for i = 1, 3 do coroutine.yield(redis.call('echo', i)) end end) \
                return {co(), co(), co()}";
    assert_eq!(
        run_in(&mut interpreter, body),
        "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"
    );
}

#[test]
fn an_interpreter_ends_while_a_script_runs() {
    for body in [
        "while true do pcall(function() while true do end end) end",
        "redis.call('x')",
    ] {
        let mut interpreter = interpreter(1 << 20);
        let step = start(&mut interpreter, body.as_bytes(), Protocol::Resp2);
        assert!(!matches!(step, Step::Done(_)), "{step:?}");
        drop(interpreter);
    }
}

#[test]
fn a_script_that_exceeds_its_memory_fails_and_the_next_one_works() {
    let mut interpreter = interpreter(8 << 20);
    for body in [
        "local t = {} while true do t[#t + 1] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "local t = {} for i = 1, 1e9 do t[i] = 'abcdefgh' .. i end",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "local t = {} while true do t[#t + 1] = redis.call('echo', ('x'):rep(10000)) end",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    ] {
        let reply = run_in(&mut interpreter, body);
        assert!(
            reply.starts_with("-ERR not enough memory script: "),
            "{body}: {reply}"
        );
        assert_eq!(
            run_in(&mut interpreter, "return #('x'):rep(1000000)"),
            ":1000000\r\n"
        );
        assert!(interpreter.used_memory() < 8 << 20);
    }
}

#[test]
fn garbage_does_not_fill_the_heap() {
    let mut interpreter = interpreter(8 << 20);
    let body = "local t = {} for i = 1, 50000 do t[i] = {} end \
                for i = 1, 1000000 do local garbage = {i} end return #t";
    assert_eq!(run_in(&mut interpreter, body), ":50000\r\n");
}

#[test]
fn a_script_with_a_full_stack_is_killed() {
    let mut interpreter = interpreter(16 << 20);
    let body = "local t = {} for i = 1, 7990 do t[i] = i end local function f() end \
                while true do f(unpack(t)) end";
    for _ in 0..100 {
        kill(&mut interpreter, body);
    }
    assert_eq!(run_in(&mut interpreter, "return 1"), ":1\r\n");
}

#[test]
fn a_script_is_compiled_while_another_one_runs() {
    let mut interpreter = interpreter(16 << 20);
    let body = b"while redis.call('reply', ':1\\r\\n') == 1 do end return #KEYS";
    let step = start(&mut interpreter, body, Protocol::Resp2);
    assert!(matches!(step, Step::Call { .. }), "{step:?}");
    let script = Script::new(b"return #ARGV").unwrap();
    assert_eq!(interpreter.compile(&script), Ok(()));
    let wrong = Script::new(b"return return").unwrap();
    let error = interpreter.compile(&wrong).unwrap_err();
    assert!(error.starts_with(b"ERR Error compiling script (new function): user_script:1: "));
    let step = interpreter.resume(Answer::Reply(b":0\r\n"));
    assert_eq!(finish(&mut interpreter, step).reply, b":2\r\n");
    assert_eq!(run_in(&mut interpreter, "return #ARGV"), ":1\r\n");
    assert_eq!(run_in(&mut interpreter, "return #ARGV"), ":1\r\n");
}

#[test]
fn a_script_that_is_compiled_before_any_has_run_has_the_same_globals() {
    let mut interpreter = interpreter(16 << 20);
    let body = "return redis.call('count', KEYS[1], ARGV[1])";
    let script = Script::new(body.as_bytes()).unwrap();
    assert_eq!(interpreter.compile(&script), Ok(()));
    assert_eq!(run_in(&mut interpreter, body), ":3\r\n");
}
