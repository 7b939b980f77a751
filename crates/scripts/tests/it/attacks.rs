//! Scripts that try to end the process, or to keep the thread for themselves.

use kumiki_scripts::{Answer, Step};
use resp::Protocol;

use crate::host::{check, error, interpreter, run, run_in, start};

#[test]
fn nesting_is_bounded() {
    let call = "local function f(n) return ";
    for (body, text) in [
        ("local function f() return 1 + f() end f()".to_owned(), "stack overflow"),
        (format!("{call} select(2, pcall(f)) end error(f())"), "C stack overflow"),
        (format!("{call} select(2, xpcall(f, f)) end error(f())"), "error in error handling"),
        (
            "local function f() return coroutine.wrap(f)() end f()".to_owned(),
            "C stack overflow",
        ),
        (
            "local function f() return string.gsub('x', 'x', f) end f()".to_owned(),
            "C stack overflow",
        ),
        (
            "local function f() table.sort({1, 2}, f) end f()".to_owned(),
            "C stack overflow",
        ),
        (
            "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x"
                .to_owned(),
            "C stack overflow",
        ),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__tostring = tostring tostring(t)"
                .to_owned(),
            "C stack overflow",
        ),
        (
            "local s = ('('):rep(100000) .. '1' .. (')'):rep(100000) error(select(2, loadstring('return ' .. s)))"
                .to_owned(),
            "too many syntax levels",
        ),
        (
            "local s = ('{'):rep(100000) .. ('}'):rep(100000) error(select(2, loadstring('return ' .. s)))"
                .to_owned(),
            "too many syntax levels",
        ),
        (
            "error(select(2, loadstring(('function f() '):rep(10000))))".to_owned(),
            "too many syntax levels",
        ),
        (
            "error(select(2, loadstring('return ' .. ('not '):rep(100000) .. '1')))".to_owned(),
            "too many syntax levels",
        ),
        (
            "return string.find(('a'):rep(1000), ('a?'):rep(1000000))".to_owned(),
            "pattern too complex",
        ),
        (
            "return string.find(('a'):rep(1000000), ('a-'):rep(1000000))".to_owned(),
            "pattern too complex",
        ),
        (
            "return cjson.decode(('['):rep(1000000))".to_owned(),
            "Found too many nested data structures (1001)",
        ),
        (
            "cjson.decode_max_depth(1e9) return cjson.decode(('['):rep(1000000))".to_owned(),
            "Found too many nested data structures",
        ),
        (
            "cjson.encode_max_depth(1e9) local t = {} for i = 1, 1e5 do t = {t} end return cjson.encode(t)"
                .to_owned(),
            "Cannot serialise, excessive nesting",
        ),
        (
            "return cmsgpack.unpack(('\\145'):rep(1000000))".to_owned(),
            "stack overflow",
        ),
        ("return unpack({}, 1, 1e8)".to_owned(), "too many results to unpack"),
        ("return unpack({}, 0, 2147483647)".to_owned(), "too many results to unpack"),
        ("return unpack({}, -2147483648)".to_owned(), "too many results to unpack"),
        ("return string.byte(('x'):rep(1e6), 1, -1)".to_owned(), "string slice too long"),
    ] {
        let error = error(&body);
        assert!(error.contains(text), "{body}: {error}");
    }
}

#[test]
fn nesting_at_the_deepest_level_is_bounded() {
    // Each of them begins where the calls of C are nested almost as deep as they may be.
    for inner in [
        "loadstring('return ' .. ('('):rep(150))",
        "string.find(('a'):rep(300), ('a?'):rep(199))",
        "string.gsub('x', 'x', function() error('x') end)",
        "cjson.encode({{{{{{{{1}}}}}}}})",
        "cjson.decode(('['):rep(900) .. (']'):rep(900))",
        "cmsgpack.pack({{{{{{{{1}}}}}}}})",
        "table.concat({('x'):rep(20000), ('y'):rep(20000)})",
        "string.format('%99.99f %s %q', 1e300, 'x', 'y')",
        "struct.pack('>!8bids', 1, 2, 3, 'x')",
        "redis.call('echo', ('x'):rep(20000))",
        "redis.sha1hex('x')",
        "collectgarbage()",
    ] {
        let body = format!(
            "local n = 0 local function f() n = n + 1 pcall(function() {inner} end) pcall(f) end f() return n"
        );
        let reply = run(&body);
        assert!(reply.starts_with(':'), "{body}: {reply}");
    }
}

#[test]
fn long_calls_give_way_and_can_be_killed() {
    let mut interpreter = interpreter(64 << 20);
    for body in [
        "local s = ('a'):rep(100000) return string.find(s, '.-.-.-.-b')",
        "local s = ('a'):rep(30) return string.find(s, ('a?'):rep(30) .. ('a'):rep(30) .. 'b')",
        "local s = ('a'):rep(1000) return string.gsub(s, ('a*'):rep(10) .. 'b', '')",
        "for w in string.gmatch(('a'):rep(100000), '.-.-.-.-b') do end",
        "local t = {} for i = 1, 500000 do t[i] = i end while true do cjson.encode(t) end",
        "local s = '[' .. ('1,'):rep(500000) .. '1]' while true do cjson.decode(s) end",
        "local t = {} for i = 1, 500000 do t[i] = i end while true do cmsgpack.pack(t) end",
        "local s = ('\\1'):rep(7000) while true do cmsgpack.unpack(s) end",
        "while true do load(function() return 'x ' end) end",
        "local function f() return load(f) end while true do f() end",
    ] {
        let mut step = start(&mut interpreter, body.as_bytes(), Protocol::Resp2);
        for _ in 0..20 {
            assert!(matches!(step, Step::Slice), "{body}: {step:?}");
            step = interpreter.resume(Answer::Continue);
        }
        assert!(matches!(step, Step::Slice), "{body}: {step:?}");
        let step = interpreter.resume(Answer::Kill("ERR killed"));
        assert!(matches!(step, Step::Done(_)), "{body}: {step:?}");
    }
    assert_eq!(run_in(&mut interpreter, "return 1"), ":1\r\n");
}

#[test]
fn large_results_end_with_an_error() {
    let mut interpreter = interpreter(16 << 20);
    for body in [
        "return ('x'):rep(1e9)",
        "return ('x'):rep(1e6):gsub('x', ('y'):rep(1e6))",
        "return cjson.encode({('\\0'):rep(10e6)})",
        "cjson.encode_sparse_array(true, 0, 0) return cjson.encode({[1e8] = 1})",
        "local t = {} for i = 1, 1000 do t[i] = i .. ('x'):rep(1e6) end",
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 100 do t[i] = s end return table.concat(t)",
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 100 do t[i] = s end return cjson.encode(t)",
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 100 do t[i] = s end return cmsgpack.pack(t)",
        "while true do redis.log(1, ('x'):rep(1e6)) end",
    ] {
        let reply = run_in(&mut interpreter, body);
        assert!(
            reply.starts_with("-ERR not enough memory"),
            "{body}: {}",
            &reply[..reply.len().min(100)]
        );
    }
    assert_eq!(run_in(&mut interpreter, "return 1"), ":1\r\n");
}

#[test]
fn errors_of_odd_types() {
    for (body, text) in [
        ("error(function() end)", "ERR function: 0x"),
        ("error(coroutine.create(function() end))", "ERR thread: 0x"),
        ("error(cjson.null)", "ERR userdata: "),
        (
            "error(setmetatable({}, {__tostring = function() return 'q' end}))",
            "ERR unknown error",
        ),
        (
            "error(setmetatable({}, {__index = function() return 'q' end}))",
            "ERR unknown error",
        ),
        ("error({err = {}})", "ERR unknown error"),
        ("error(redis)", "ERR unknown error"),
        ("error(_G)", "ERR unknown error"),
    ] {
        let error = error(body);
        assert!(error.starts_with(text), "{body}: {error}");
    }
    check(&[(
        "local t = setmetatable({}, {__tostring = function() return {} end}) \
         return select(2, pcall(tostring, t)) and 1",
        ":1\r\n",
    )]);
}

#[test]
fn results_are_bounded() {
    let mut interpreter = interpreter(64 << 20);
    let body = "local s, t = string.rep('x', 16000000), {} for i = 1, 100 do t[i] = s end return t";
    let expected = "-ERR the result of the script is longer than 512mb\r\n";
    assert_eq!(run_in(&mut interpreter, body), expected);
    assert_eq!(run_in(&mut interpreter, "return 1"), ":1\r\n");
}

#[test]
fn tables_with_holes_are_not_shifted() {
    let holes = "local s = '' for i = 0, 29 do s = s .. '[' .. 2 ^ i .. ']=1,' end \
                 local t = loadstring('return {' .. s .. '}')()";
    check(&[(&format!("{holes} return #t"), ":536870912\r\n")]);
    for call in ["table.insert(t, 1, 1)", "table.remove(t, 1)"] {
        let error = error(&format!("{holes} {call}"));
        assert!(error.contains("too many holes in the table"), "{error}");
    }
    check(&[
        (
            "local t = {1, 2, 3} table.insert(t, 1, 0) table.remove(t, 2) return t",
            "*3\r\n:0\r\n:2\r\n:3\r\n",
        ),
        (
            "local t = {} for i = 1, 20000 do t[i] = i end table.insert(t, 1, 0) return #t",
            ":20001\r\n",
        ),
    ]);
}

#[test]
fn functions_get_as_many_arguments_as_there_can_be() {
    let mut interpreter = interpreter(64 << 20);
    for count in 7970..=8000 {
        for call in [
            "pcall(unpack(t))",
            "pcall(function() return unpack(t) end)",
            "xpcall(function() return unpack(t) end, error)",
            "redis.call(unpack(t))",
            "redis.call({}, unpack(t))",
            "redis.pcall(unpack(t))",
            "redis.log(unpack(t))",
            "string.find('abc', ('()'):rep(30), 1, unpack(t))",
            "string.match(unpack(t))",
            "string.gsub(unpack(t))",
            "cmsgpack.pack({{{1}}}, unpack(t))",
            "cmsgpack.unpack(cmsgpack.pack(unpack(t)))",
            "struct.pack(('b'):rep(8000), unpack(t))",
            "struct.unpack(('b'):rep(#t), ('x'):rep(#t))",
            "bit.bor(unpack(t))",
            "setmetatable(unpack(t))",
            "rawset(_G, unpack(t))",
            "getmetatable(unpack(t))",
            "coroutine.wrap(pcall, unpack(t))",
            "coroutine.wrap(function(...) return pcall(unpack, t) end)(unpack(t))",
            "load(function() end, unpack(t))",
        ] {
            let body = format!(
                "local t = {{}} for i = 1, {count} do t[i] = 1 end return (select('#', {call}))"
            );
            let reply = run_in(&mut interpreter, &body);
            assert!(reply.starts_with([':', '-']), "{body}: {reply}");
        }
    }
    check(&[(
        "local t = {'count'} for i = 2, 7970 do t[i] = i end return redis.call(unpack(t))",
        ":7970\r\n",
    )]);
}
