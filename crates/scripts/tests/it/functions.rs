//! Libraries of functions.

use std::sync::Arc;

use kumiki_scripts::{Answer, FunctionCall, Interpreter, Library, ScriptFlags, Step};
use resp::Protocol;

use crate::host::{finish, interpreter, run_in};

const HEAD: &str = "#!lua name=mylib\n";

fn load(interpreter: &mut Interpreter, code: &str) -> Arc<Library> {
    let source = format!("{HEAD}{code}");
    let library = Library::parse(source.as_bytes()).unwrap();
    Arc::new(interpreter.load_library(library).unwrap())
}

fn start(interpreter: &mut Interpreter, library: &Arc<Library>) -> Step {
    interpreter.start_function(FunctionCall {
        library,
        function: "f",
        keys: &[b"k1"],
        arguments: &[b"a1"],
        protocol: Protocol::Resp2,
    })
}

fn call(interpreter: &mut Interpreter, library: &Arc<Library>) -> String {
    let step = start(interpreter, library);
    let reply = finish(interpreter, step).reply;
    reply.escape_ascii().to_string()
}

/// The transcript has lines `> ` with a library, `= ` with the reply to `FUNCTION LOAD`, and, if there
/// is a function `f`, `< ` with the reply to its call.
#[test]
fn libraries_behave_as_in_redis() {
    let mut library = None;
    let mut interpreter = interpreter(16 << 20);
    let mut source = String::new();
    for line in include_str!("transcripts/functions.txt").lines() {
        let (mark, text) = line.split_at(2);
        match mark {
            "> " => source = text.replace("\\n", "\n"),
            "= " => {
                let parsed = Library::parse(source.as_bytes());
                let loaded = parsed.and_then(|library| interpreter.load_library(library));
                let reply = match &loaded {
                    Ok(library) => {
                        let name = library.name();
                        format!("${}\r\n{name}\r\n", name.len()).into_bytes()
                    }
                    Err(text) => [b"-", &text[..], b"\r\n"].concat(),
                };
                assert_eq!(reply.escape_ascii().to_string(), text, "{source}");
                library = loaded.ok().map(Arc::new);
            }
            _ => {
                let library = library.as_ref().expect("a library");
                assert_eq!(call(&mut interpreter, library), text, "{source}");
            }
        }
    }
}

#[test]
fn a_library_has_what_it_registers() {
    let mut interpreter = interpreter(16 << 20);
    let library = load(
        &mut interpreter,
        "redis.register_function('f', function() end) \
         redis.register_function{function_name='g', callback=function() end, description='d', \
         flags={'no-writes', 'allow-stale'}}",
    );
    assert_eq!((library.name(), library.engine()), ("mylib", "LUA"));
    assert!(library.source().starts_with(HEAD.as_bytes()));
    let [f, g] = library.functions() else {
        panic!("two functions: {library:?}");
    };
    assert_eq!((f.name.as_str(), &f.description), ("f", &None));
    assert_eq!(f.flags, ScriptFlags::default());
    assert_eq!(
        (g.name.as_str(), g.description.as_deref()),
        ("g", Some(&b"d"[..]))
    );
    let flags = ScriptFlags {
        no_writes: true,
        allow_stale: true,
        ..ScriptFlags::default()
    };
    assert_eq!(g.flags, flags);
}

/// Functions are called by their names in any case. Redis accepts both, and then cannot remove the library.
#[test]
fn names_of_functions_differ_in_more_than_their_case() {
    let mut interpreter = interpreter(16 << 20);
    let source = format!(
        "{HEAD}redis.register_function('f', function() end) redis.register_function('F', function() end)"
    );
    let library = Library::parse(source.as_bytes()).unwrap();
    let refused = interpreter.load_library(library).unwrap_err();
    let text = "ERR Error registering functions: ERR Function already exists in the library";
    assert_eq!(String::from_utf8_lossy(&refused), text);
}

#[test]
fn no_variable_keeps_a_value_from_one_call_to_the_next() {
    let mut interpreter = interpreter(16 << 20);
    let library = load(
        &mut interpreter,
        "local count, list = 0, {} redis.register_function('f', function() \
         count = count + 1 list[#list + 1] = count return list end)",
    );
    for _ in 0..3 {
        assert_eq!(call(&mut interpreter, &library), "*1\\r\\n:1\\r\\n");
    }
}

/// Functions are called again without the code of their library, unless they have changed a variable of it.
#[test]
fn variables_of_all_kinds_are_clean_in_every_call() {
    let mut interpreter = interpreter(16 << 20);
    for (variables, body, reply) in [
        ("", "return 1", ":1"),
        ("local n = 0", "n = n + 1 return n", ":1"),
        (
            "local n = 0 local function add() n = n + 1 return n end",
            "return add()",
            ":1",
        ),
        (
            "local s = 'a' local function twice(x) return x .. x end",
            "s = twice(s) return #s",
            ":2",
        ),
        (
            "local s = 'a' local function twice(x) return x .. x end",
            "return #twice(s)",
            ":2",
        ),
        (
            "local again again = function(n) if n == 0 then return 0 end return again(n - 1) end",
            "local n = again(3) again = nil return n",
            ":0",
        ),
        (
            "local next_of = ('abc'):gmatch('.')",
            "return next_of()",
            "$1",
        ),
        ("local on = false", "on = not on return on and 1 or 2", ":1"),
        (
            "local g = function() return 1 end",
            "local old = g g = function() return 2 end return old()",
            ":1",
        ),
        ("local n = 0", "n = n + 1 if n < 9 then error(n) end", "-"),
        ("local list = {}", "list[#list + 1] = 1 return #list", ":1"),
    ] {
        let code = format!("{variables} redis.register_function('f', function() {body} end)");
        let library = load(&mut interpreter, &code);
        let first = call(&mut interpreter, &library);
        assert!(first.starts_with(reply), "{code}: {first}");
        for _ in 0..4 {
            assert_eq!(call(&mut interpreter, &library), first, "{code}");
        }
    }
}

#[test]
fn functions_and_scripts_do_not_see_each_other() {
    let mut interpreter = interpreter(16 << 20);
    assert_eq!(run_in(&mut interpreter, "return #KEYS"), ":2\r\n");
    let library = load(
        &mut interpreter,
        "redis.register_function('f', function() \
         return {tostring(rawget(_G, 'KEYS')), tostring(redis.register_function), type(redis.call)} end)",
    );
    let reply = call(&mut interpreter, &library);
    assert_eq!(
        reply,
        "*3\\r\\n$3\\r\\nnil\\r\\n$3\\r\\nnil\\r\\n$8\\r\\nfunction\\r\\n"
    );
    let body = "return {#KEYS, type(redis.breakpoint), loadstring('return #KEYS')()}";
    assert_eq!(
        run_in(&mut interpreter, body),
        "*3\r\n:2\r\n$8\r\nfunction\r\n:2\r\n"
    );
}

#[test]
fn functions_run_in_slices_and_call_commands() {
    let mut interpreter = interpreter(16 << 20);
    let library = load(
        &mut interpreter,
        "redis.register_function('f', function(keys, args) for i = 1, 1e7 do end \
         return redis.call('echo', keys[1] .. args[1]) end)",
    );
    let step = start(&mut interpreter, &library);
    assert!(matches!(step, Step::Slice), "{step:?}");
    let outcome = finish(&mut interpreter, step);
    assert_eq!(outcome.reply, b"$4\r\nk1a1\r\n");
    let step = start(&mut interpreter, &library);
    assert!(matches!(step, Step::Slice), "{step:?}");
    let Step::Done(outcome) = interpreter.resume(Answer::Kill("ERR killed")) else {
        panic!("a killed function goes on");
    };
    assert_eq!(
        outcome.reply,
        b"-ERR killed script: f, on @user_function:2.\r\n"
    );
}

#[test]
fn a_function_that_is_not_registered_again_is_not_found() {
    let mut interpreter = interpreter(16 << 20);
    let library = load(
        &mut interpreter,
        "redis.register_function('g', function() end)",
    );
    assert_eq!(
        call(&mut interpreter, &library),
        "-ERR Function not found\\r\\n"
    );
}
