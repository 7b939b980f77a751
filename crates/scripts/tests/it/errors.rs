use crate::host::{check, check_errors};

#[test]
fn errors_have_the_place_of_the_script() {
    check_errors(&[
        (
            "error('boom')",
            "ERR user_script:1: boom, on @user_script:1.",
        ),
        ("error('a', 0)", "ERR a, on @user_script:1."),
        ("error({err='My err'})", "My err, on @user_script:1."),
        (
            "error({err='x',line=7,source='foo'})",
            "x, on @user_script:1.",
        ),
        ("error({err=5})", "5, on @user_script:1."),
        ("error()", "ERR nil, on @user_script:1."),
        ("error(true)", "ERR true, on @user_script:1."),
        ("error(12)", "ERR user_script:1: 12, on @user_script:1."),
        ("error({})", "ERR unknown error, on @user_script:1."),
        (
            "local function f()\nerror('deep') end\n\nf()",
            "ERR user_script:2: deep, on @user_script:2.",
        ),
        (
            "#!lua\nerror('x')",
            "ERR user_script:2: x, on @user_script:2.",
        ),
        (
            "error('a\\nb')",
            "ERR user_script:1: a b, on @user_script:1.",
        ),
        (
            "loadstring(\"error('x')\")()",
            "ERR [string \"error('x')\"]:1: x, on error('x'):1.",
        ),
        (
            "local f=loadstring('error(\"q\")','@abc') f()",
            "ERR abc:1: q, on @abc:1.",
        ),
        (
            "coroutine.wrap(function() error('x') end)()",
            "ERR user_script:1: user_script:1: x, on @user_script:1.",
        ),
        (
            "local a a.b=1",
            "ERR user_script:1: attempt to index local 'a' (a nil value), on @user_script:1.",
        ),
        (
            "string.rep()",
            "ERR user_script:1: bad argument #1 to 'rep' (string expected, got no value), on @user_script:1.",
        ),
        (
            "pairs(1)",
            "ERR user_script:1: bad argument #1 to 'pairs' (table expected, got number), on @user_script:1.",
        ),
        (
            "return collectgarbage('foo')",
            "ERR user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'foo'), on @user_script:1.",
        ),
        (
            "return math.random(2,1)",
            "ERR user_script:1: bad argument #2 to 'random' (interval is empty), on @user_script:1.",
        ),
        (
            "return math.random(1,2,3)",
            "ERR user_script:1: wrong number of arguments, on @user_script:1.",
        ),
    ]);
}

#[test]
fn errors_of_commands() {
    check_errors(&[
        (
            "\n\nreturn redis.call('nosuch',1,2)",
            "ERR Unknown Redis command called from script, on @user_script:3.",
        ),
        (
            "coroutine.wrap(function() return redis.call('nosuch') end)()",
            "ERR Unknown Redis command called from script, on @user_script:1.",
        ),
        (
            "error(redis.pcall('nosuch'))",
            "ERR Unknown Redis command called from script, on @user_script:1.",
        ),
        (
            "return redis.pcall('nosuch')",
            "ERR Unknown Redis command called from script",
        ),
        (
            "return redis.call()",
            "ERR Please specify at least one argument for this redis lib call, on @user_script:1.",
        ),
        (
            "return redis.pcall()",
            "ERR Please specify at least one argument for this redis lib call",
        ),
        (
            "return redis.call('get', nil)",
            "ERR Lua redis lib command arguments must be strings or integers, on @user_script:1.",
        ),
        (
            "return redis.sha1hex()",
            "ERR wrong number of arguments, on @user_script:1.",
        ),
        (
            "redis.log(1)",
            "ERR redis.log() requires two arguments or more., on @user_script:1.",
        ),
        (
            "redis.log(9,'x')",
            "ERR Invalid debug level., on @user_script:1.",
        ),
        (
            "redis.log('a','x')",
            "ERR First argument must be a number (log level)., on @user_script:1.",
        ),
        (
            "redis.setresp()",
            "ERR redis.setresp() requires one argument., on @user_script:1.",
        ),
        (
            "redis.setresp(4)",
            "ERR RESP version must be 2 or 3., on @user_script:1.",
        ),
        (
            "redis.set_repl()",
            "ERR redis.set_repl() requires two arguments., on @user_script:1.",
        ),
        (
            "redis.set_repl(9)",
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE., \
             on @user_script:1.",
        ),
        (
            "redis.acl_check_cmd('nosuch')",
            "ERR Invalid command passed to redis.acl_check_cmd(), on @user_script:1.",
        ),
    ]);
}

#[test]
fn scripts_that_do_not_compile() {
    check_errors(&[
        (
            "syntax error here",
            "ERR Error compiling script (new function): user_script:1: '=' expected near 'error'",
        ),
        (
            "return 'abc",
            "ERR Error compiling script (new function): user_script:1: unfinished string near '<eof>'",
        ),
        (
            "#!lua\nx x",
            "ERR Error compiling script (new function): user_script:2: '=' expected near 'x'",
        ),
    ]);
}

#[test]
fn caught_errors() {
    check(&[
        (
            "local ok,e = pcall(redis.call,'nosuch') return {tostring(ok), type(e), e}",
            "*3\r\n$5\r\nfalse\r\n$6\r\nstring\r\n$44\r\nERR Unknown Redis command called from script\r\n",
        ),
        (
            "local ok,e = pcall(error,{foo=1}) return type(e)",
            "$5\r\ntable\r\n",
        ),
        (
            "local ok,e = pcall(error,{err=5}) return type(e)",
            "$6\r\nnumber\r\n",
        ),
        (
            "return {pcall(function() return 1,2,3 end)}",
            "*4\r\n:1\r\n:1\r\n:2\r\n:3\r\n",
        ),
        ("return tostring(pcall())", "$5\r\nfalse\r\n"),
        (
            "local ok,e = xpcall(function() error('x') end, function(e) return 'h:'..e end) return e",
            "$18\r\nh:user_script:1: x\r\n",
        ),
        (
            "local ok,e = xpcall(function() redis.call('nosuch') end, function(e) return e.err end) return e",
            "$44\r\nERR Unknown Redis command called from script\r\n",
        ),
        (
            "local co = coroutine.create(function() return redis.call('nosuch') end) \
             local ok,e = coroutine.resume(co) return e.err",
            "$44\r\nERR Unknown Redis command called from script\r\n",
        ),
        (
            "local a,b = xpcall(error, function(e) error('y') end) return b",
            "$23\r\nerror in error handling\r\n",
        ),
        (
            "local a,b = xpcall(1,2) return b",
            "$23\r\nerror in error handling\r\n",
        ),
        (
            "return select(2,load(function() return {} end))",
            "-ERR user_script:1: reader function must return a string\r\n",
        ),
        ("return loadstring('return 1+1')()", ":2\r\n"),
        (
            "return select(2,loadstring('x x'))",
            "$39\r\n[string \"x x\"]:1: '=' expected near 'x'\r\n",
        ),
        (
            "local n=0 return load(function() n=n+1 if n==1 then return 'return 4' end end)()",
            ":4\r\n",
        ),
        (
            "return select(2,load(function() error('q') end))",
            "-ERR user_script:1: q\r\n",
        ),
    ]);
}
