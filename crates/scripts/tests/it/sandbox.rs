use crate::host::{check, check_errors, interpreter, run_in};

const READONLY: &str = "ERR user_script:1: Attempt to modify a readonly table, on @user_script:1.";
const READONLY_NATIVE: &str = "ERR Attempt to modify a readonly table, on @user_script:1.";

#[test]
fn global_variables_are_those_of_redis() {
    let names = "ARGV:table KEYS:table _G:table _VERSION:string assert:function bit:table \
        cjson:table cmsgpack:table collectgarbage:function coroutine:table \
        error:function gcinfo:function getmetatable:function ipairs:function \
        load:function loadstring:function math:table next:function pairs:function \
        pcall:function rawequal:function rawget:function rawset:function \
        redis:table select:function setmetatable:function string:table struct:table \
        table:table tonumber:function tostring:function type:function \
        unpack:function xpcall:function";
    let body = "local t={} for k,v in pairs(_G) do t[#t+1]=k..':'..type(v) end table.sort(t) \
                return table.concat(t,' ')";
    check(&[(body, &format!("${}\r\n{names}\r\n", names.len()))]);
}

#[test]
fn tables_of_the_sandbox_cannot_be_changed() {
    for body in [
        "x=1",
        "KEYS=1",
        "_G.KEYS=nil",
        "function f() end",
        "string.x=1",
        "string.len=1",
        "redis.call=nil",
        "getmetatable('').__index=1",
        "getmetatable(_G).__index=nil",
        "for k in pairs(string) do string[k]=1 end",
    ] {
        check_errors(&[(body, READONLY)]);
    }
    for body in [
        "rawset(_G,'x',1)",
        "rawset(string,'x',1)",
        "setmetatable(_G,{})",
        "setmetatable(string,{})",
        "table.insert(string,1)",
        "table.insert(_G,1,1)",
    ] {
        check_errors(&[(body, READONLY_NATIVE)]);
    }
    check(&[
        ("table.sort(redis)", "$-1\r\n"),
        ("return table.remove(string)", "$-1\r\n"),
    ]);
}

#[test]
fn tables_of_the_sandbox_can_be_read() {
    check(&[
        ("return tostring(_G._G == _G)", "$4\r\ntrue\r\n"),
        ("return tostring(rawget(_G,'foo'))", "$3\r\nnil\r\n"),
        ("return type(rawget(_G,'redis'))", "$5\r\ntable\r\n"),
        ("return type(rawget(redis,'call'))", "$8\r\nfunction\r\n"),
        ("return tostring(string.foo)", "$3\r\nnil\r\n"),
        (
            "local n=0 for k in pairs(redis) do n=n+1 end return n",
            ":23\r\n",
        ),
        (
            "local n=0 for k in next, redis do n=n+1 end return n",
            ":23\r\n",
        ),
        (
            "local n=0 table.foreach(redis, function() n=n+1 end) return n",
            ":23\r\n",
        ),
        ("return tostring(getmetatable(string))", "$3\r\nnil\r\n"),
        (
            "return type(getmetatable(_G).__index)",
            "$8\r\nfunction\r\n",
        ),
        (
            "return tostring(getmetatable(getmetatable(_G)))",
            "$3\r\nnil\r\n",
        ),
        (
            "return tostring(getmetatable('').__index == string)",
            "$4\r\ntrue\r\n",
        ),
        ("return ('x'):rep(3)", "$3\r\nxxx\r\n"),
        (
            "return getmetatable(setmetatable({},{__metatable='locked'}))",
            "$6\r\nlocked\r\n",
        ),
        ("return tostring(getmetatable(5))", "$3\r\nnil\r\n"),
        (
            "return setmetatable({},{__index=function(t,k) return k..'!' end}).abc",
            "$4\r\nabc!\r\n",
        ),
        ("return _VERSION", "$7\r\nLua 5.1\r\n"),
    ]);
}

#[test]
fn other_global_variables_do_not_exist() {
    for name in [
        "x", "print", "dofile", "loadfile", "io", "os", "debug", "require", "module", "newproxy",
        "getfenv", "setfenv", "package",
    ] {
        let text = "Script attempted to access nonexistent global variable";
        let error = format!("ERR user_script:1: {text} '{name}', on @user_script:1.");
        check_errors(&[
            (&format!("return {name}"), &error),
            (&format!("local a = _G.{name}"), &error),
        ]);
    }
}

#[test]
fn compiled_code_does_not_load() {
    check(&[
        (
            "return select(2,loadstring(string.dump(function() return 1 end)))",
            "$53\r\n[string \"\u{1b}LuaQ\"]:1: unexpected symbol near 'char(27)'\r\n",
        ),
        (
            "local code = string.dump(function() return 1 end) \
             return tostring((load(function() local c = code code = nil return c end)))",
            "$3\r\nnil\r\n",
        ),
    ]);
}

#[test]
fn nothing_outlives_a_run() {
    let mut interpreter = interpreter(1 << 20);
    let body = "KEYS[3]='x' math.random() redis.setresp(3) \
                coroutine.wrap(function() coroutine.yield() end)() collectgarbage('stop') \
                return #KEYS";
    let first = run_in(&mut interpreter, body);
    assert_eq!(first, ":3\r\n");
    assert_eq!(run_in(&mut interpreter, body), first);
    assert_eq!(
        run_in(&mut interpreter, "return redis.call('get','x')"),
        "$-1\r\n"
    );
}
