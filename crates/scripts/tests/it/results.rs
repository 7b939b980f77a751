use crate::host::{check, interpreter, outcome, run_in, run3};
use kumiki_scripts::ScriptLogLevel;
use resp::Protocol;

#[test]
fn values_become_replies() {
    check(&[
        ("return 3.99", ":3\r\n"),
        ("return -5.5", ":-5\r\n"),
        (
            "return {1.9, -1.9, 1e20, -1e20, 0/0, 1/0}",
            "*6\r\n:1\r\n:-1\r\n:-9223372036854775808\r\n:-9223372036854775808\r\n\
             :-9223372036854775808\r\n:-9223372036854775808\r\n",
        ),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        ("return", "$-1\r\n"),
        ("", "$-1\r\n"),
        ("return 'abc'", "$3\r\nabc\r\n"),
        ("return function() end", "$-1\r\n"),
        ("return coroutine.create(function() end)", "$-1\r\n"),
        ("return {true,false,1}", "*3\r\n:1\r\n$-1\r\n:1\r\n"),
        ("return {false,nil,1}", "*1\r\n$-1\r\n"),
        ("return {'a','b',nil,'d'}", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("return {[1]='a',[3]='c'}", "*1\r\n$1\r\na\r\n"),
        ("return {a=1}", "*0\r\n"),
        (
            "return {{},{{}},'x'}",
            "*3\r\n*0\r\n*1\r\n*0\r\n$1\r\nx\r\n",
        ),
        (
            "return {KEYS[1],ARGV[1],KEYS[3]}",
            "*2\r\n$2\r\nk1\r\n$2\r\na1\r\n",
        ),
        ("KEYS[1]=5 return KEYS", "*2\r\n:5\r\n$2\r\nk2\r\n"),
        ("return #KEYS+#ARGV", ":3\r\n"),
    ]);
}

#[test]
fn tables_with_fields_become_typed_replies() {
    check(&[
        ("return {ok='OK',1,2}", "+OK\r\n"),
        ("return {ok='OK',err='E'}", "-E\r\n"),
        ("return {err='x y'}", "-x y\r\n"),
        ("return {err='-MY x'}", "--MY x\r\n"),
        ("return {err='a\\nb'}", "-a b\r\n"),
        ("return {ok='a\\nb'}", "+a b\r\n"),
        ("return {err=5}", "*0\r\n"),
        ("return {ok={}}", "*0\r\n"),
        ("return {double=3.5}", "$3\r\n3.5\r\n"),
        ("return {double=0/0}", "$4\r\n-nan\r\n"),
        ("return {double='3.5'}", "*0\r\n"),
        ("return {double=1,map={}}", "$1\r\n1\r\n"),
        (
            "return {map={x={map={y=1}}}}",
            "*2\r\n$1\r\nx\r\n*2\r\n$1\r\ny\r\n:1\r\n",
        ),
        ("return {map={[1]=2}}", "*2\r\n:1\r\n:2\r\n"),
        ("return {map=5}", "*0\r\n"),
        ("return {set={a=true}}", "*1\r\n$1\r\na\r\n"),
        ("return {set={'a'}}", "*1\r\n:1\r\n"),
        ("return {big_number='1\\n3'}", "$3\r\n1 3\r\n"),
        (
            "return {verbatim_string={string='hi',format='txt'}}",
            "$2\r\nhi\r\n",
        ),
        ("return {verbatim_string={string=1,format=2}}", "*0\r\n"),
        (
            "return setmetatable({},{__index=function(t,k) return 'yes' end})",
            "*0\r\n",
        ),
    ]);
}

#[test]
fn results_for_resp3() {
    for (body, expected) in [
        ("return true", ":1\r\n"),
        ("return false", "_\r\n"),
        ("return nil", "_\r\n"),
        (
            "redis.setresp(3) return {true,false,nil,1}",
            "*2\r\n#t\r\n#f\r\n",
        ),
        ("return {double=0.1}", ",0.10000000000000001\r\n"),
        ("return {double=-1/0}", ",-inf\r\n"),
        ("return {double=1e100}", ",1e+100\r\n"),
        (
            "return {map={a={map={b=false}}}}",
            "%1\r\n$1\r\na\r\n%1\r\n$1\r\nb\r\n_\r\n",
        ),
        ("return {set={a=true}}", "~1\r\n$1\r\na\r\n"),
        ("return {big_number='123'}", "(123\r\n"),
        (
            "return {verbatim_string={string='hi',format='t'}}",
            "=6\r\nt  :hi\r\n",
        ),
        (
            "return {verbatim_string={string='hi',format='text'}}",
            "=6\r\ntex:hi\r\n",
        ),
        ("return {verbatim_string={string='hi'}}", "*0\r\n"),
    ] {
        assert_eq!(run3(body), expected, "{body}");
    }
    check(&[
        ("redis.setresp(3) return false", ":0\r\n"),
        ("redis.setresp(3) return nil", "$-1\r\n"),
    ]);
}

#[test]
fn replies_become_values() {
    check(&[
        ("return redis.call('echo', 'x\\ny')", "$3\r\nx\ny\r\n"),
        (
            "return type(redis.call('reply', ':5\\r\\n'))",
            "$6\r\nnumber\r\n",
        ),
        ("return tostring(redis.call('get', 'x'))", "$5\r\nfalse\r\n"),
        (
            "return tostring(redis.call('reply', '*-1\\r\\n'))",
            "$5\r\nfalse\r\n",
        ),
        (
            "redis.setresp(3) return tostring(redis.call('get', 'x'))",
            "$3\r\nnil\r\n",
        ),
        ("return redis.call('set', 'a', 'b').ok", "$2\r\nOK\r\n"),
        (
            "return #redis.call('reply', '*2\\r\\n:1\\r\\n*1\\r\\n$0\\r\\n\\r\\n')[2]",
            ":1\r\n",
        ),
        (
            "return redis.call('reply', ',1.5\\r\\n').double * 2",
            ":3\r\n",
        ),
        (
            "return redis.call('reply', '(12\\r\\n').big_number",
            "$2\r\n12\r\n",
        ),
        (
            "return redis.call('reply', '%1\\r\\n+a\\r\\n:7\\r\\n')",
            "*2\r\n+a\r\n:7\r\n",
        ),
        (
            "return redis.call('reply', '%1\\r\\n$1\\r\\na\\r\\n:7\\r\\n').map.a",
            ":7\r\n",
        ),
        (
            "return tostring(redis.call('reply', '~1\\r\\n:4\\r\\n').set[4])",
            "$4\r\ntrue\r\n",
        ),
        (
            "return tostring(redis.call('reply', '#f\\r\\n'))",
            "$5\r\nfalse\r\n",
        ),
        (
            "local v = redis.call('reply', '=6\\r\\ntxt:hi\\r\\n').verbatim_string \
             return v.format .. v.string",
            "$5\r\ntxthi\r\n",
        ),
        (
            "return redis.call('reply', '|1\\r\\n+ttl\\r\\n:5\\r\\n:1\\r\\n')",
            ":1\r\n",
        ),
        (
            "local e = redis.pcall('nosuch') \
             return {type(e), e.err, tostring(e.ignore_error_stats_update)}",
            "*3\r\n$5\r\ntable\r\n$44\r\nERR Unknown Redis command called from script\r\n$4\r\ntrue\r\n",
        ),
    ]);
}

#[test]
fn numbers_become_arguments_of_commands() {
    for (number, text) in [
        ("1.5", "1.5"),
        ("100", "100"),
        ("1e15", "1000000000000000"),
        ("1e17", "1e+17"),
        ("0.1", "0.10000000000000001"),
        ("-0", "-0"),
        ("1/0", "inf"),
        ("0/0", "-nan"),
        ("12345678901234567890", "1.2345678901234567e+19"),
        ("9007199254740993", "9007199254740992"),
    ] {
        let body = format!("return redis.call('echo', {number})");
        check(&[(&body, &format!("${}\r\n{text}\r\n", text.len()))]);
    }
    check(&[("return redis.call('count', 'a', 1, KEYS[1])", ":4\r\n")]);
}

#[test]
fn small_functions_of_the_library() {
    check(&[
        (
            "return redis.sha1hex('')",
            "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n",
        ),
        (
            "return redis.sha1hex({})",
            "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n",
        ),
        ("return redis.error_reply('x')", "-ERR x\r\n"),
        ("return redis.error_reply('ERR x')", "-ERR x\r\n"),
        ("return redis.error_reply('-MY x')", "-MY x\r\n"),
        ("return redis.error_reply('-x')", "-ERR x\r\n"),
        ("return redis.error_reply(' x')", "- x\r\n"),
        (
            "return redis.error_reply({})",
            "-ERR wrong number or type of arguments\r\n",
        ),
        (
            "return redis.error_reply('a','b')",
            "-ERR wrong number or type of arguments\r\n",
        ),
        ("return redis.status_reply('x')", "+x\r\n"),
        (
            "return redis.status_reply(1)",
            "-ERR wrong number or type of arguments\r\n",
        ),
        ("return redis.replicate_commands()", ":1\r\n"),
        ("return redis.set_repl(redis.REPL_ALL)", "$-1\r\n"),
        ("return redis.breakpoint()", "$-1\r\n"),
        ("return redis.debug('x')", "$-1\r\n"),
        ("return redis.REDIS_VERSION", "$6\r\n7.0.15\r\n"),
        ("return redis.REDIS_VERSION_NUM", ":458767\r\n"),
        ("redis.setresp('3')", "$-1\r\n"),
        ("return redis.acl_check_cmd('get','x')", ":1\r\n"),
        ("return redis.acl_check_cmd('set','x')", "$-1\r\n"),
    ]);
}

#[test]
fn log_lines_are_returned_in_order() {
    let body = "redis.log(redis.LOG_WARNING,'a',1,nil,true,'b') redis.log('1','x')";
    let outcome = outcome(&mut interpreter(1 << 20), body, Protocol::Resp2);
    let expected = [
        (ScriptLogLevel::Warning, b"a 1 b".to_vec()),
        (ScriptLogLevel::Verbose, b"x".to_vec()),
    ];
    assert_eq!(outcome.log, expected);
    assert!(!outcome.is_error);
}

#[test]
fn random_numbers_differ_from_run_to_run() {
    let mut interpreter = interpreter(16 << 20);
    let mut draw = || run_in(&mut interpreter, "return math.random(2147483647)");
    let drawn = [draw(), draw(), draw()];
    assert!(drawn[0] != drawn[1] || drawn[1] != drawn[2], "{drawn:?}");
}

#[test]
fn random_numbers_are_those_of_the_seed() {
    let numbers = "{tostring(math.random()),tostring(math.random()),math.random(100)}";
    let from_zero = "*3\r\n$16\r\n0.17082803611217\r\n$16\r\n0.74990198051087\r\n:10\r\n";
    check(&[
        (&format!("math.randomseed(0) return {numbers}"), from_zero),
        (
            &format!("math.randomseed(5) return {numbers}"),
            "*3\r\n$16\r\n0.52483957937213\r\n$16\r\n0.27285430173988\r\n:79\r\n",
        ),
        (
            &format!("math.randomseed(-1) return {numbers}"),
            "*3\r\n$16\r\n0.30002572727391\r\n$17\r\n0.045311516171932\r\n:36\r\n",
        ),
        (
            "math.randomseed(4294967301) return tostring(math.random())",
            "$16\r\n0.52483957937213\r\n",
        ),
    ]);
}
