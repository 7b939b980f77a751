"""What packages for Python keep on a server: `frameworks.py NAME PORT`. Says "done" when all is as it should
be."""

import sys
import threading
import time

import redis

THREADS, ROUNDS = 8, 50


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def raises(kind, function):
    try:
        function()
    except kind:
        return
    raise AssertionError(f"{function} raises no {kind.__name__}")


def in_threads(function):
    """Calls a function from several threads, many times each, and returns what it returned."""
    returned, failed = [], []

    def work():
        try:
            for _ in range(ROUNDS):
                returned.append(function())
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("failures", failed, [])
    return returned


def guarded(lock):
    """Returns a function that counts in two steps while it has the lock, and the count."""
    counts = [0]

    def count():
        with lock():
            read = counts[0]
            time.sleep(0)
            counts[0] = read + 1

    return count, counts


def locks_of_redis_py(client):
    count, counts = guarded(lambda: client.lock("guard", timeout=60, sleep=0.001))
    in_threads(count)
    check("counted under the lock", counts, [THREADS * ROUNDS])

    held = client.lock("held", timeout=60)
    check("acquired", held.acquire(), True)
    other = client.lock("held", timeout=60)
    check("acquired by another", other.acquire(blocking=False), False)
    for change in [lambda: other.extend(10), other.release]:
        other.local.token = b"a guess"
        raises(redis.exceptions.LockNotOwnedError, change)
    check("extended", held.extend(100), True)
    check("the time left", 150_000 < client.pttl("held") <= 160_000, True)
    check("renewed", held.reacquire(), True)
    check("the time left", 50_000 < client.pttl("held") <= 60_000, True)
    held.release()
    check("released", client.exists("held"), 0)


def scripts_of_redis_py(client):
    source = "local sum = redis.call('incrby', KEYS[1], ARGV[1]); return {sum, KEYS[1], ARGV[1]}"
    add = client.register_script(source)
    sums = in_threads(lambda: add(keys=["sum"], args=[3])[0])
    check("sums", sorted(sums), list(range(3, 3 * THREADS * ROUNDS + 1, 3)))
    check("a reply", add(keys=["another"], args=["7"]), [7, b"another", b"7"])
    check("known scripts", client.script_exists(add.sha, "0" * 40), [True, False])
    # A server that does not know the script is sent it again.
    client.script_flush()
    check("a reply", add(keys=["another"], args=["7"]), [14, b"another", b"7"])
    client.script_flush()
    with client.pipeline() as block:
        add(keys=["another"], args=["1"], client=block)
        block.get("another")
        check("a block", block.execute(), [[15, b"another", b"1"], b"15"])
    client.set("text", "no number")
    raises(redis.exceptions.ResponseError, lambda: add(keys=["text"], args=[1]))


def cache_of_django_redis(client):
    from django.conf import settings

    port = client.connection_pool.connection_kwargs["port"]
    backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}/0"}
    settings.configure(CACHES={"default": backend})
    from django.core.cache import cache

    # It counts by a script, because the key must be there.
    raises(ValueError, lambda: cache.incr("count"))
    cache.set("count", 0, timeout=1000)
    in_threads(lambda: cache.incr("count"))
    check("counted", cache.get("count"), THREADS * ROUNDS)
    check("the time left", 900 < cache.ttl("count") <= 1000, True)
    check("counted back", cache.decr("count", 400), 0)

    count, counts = guarded(lambda: cache.lock("guard", timeout=60, sleep=0.001))
    in_threads(count)
    check("counted under the lock", counts, [THREADS * ROUNDS])

    cache.set_many({"one": [1], "two": {"deep": 2}})
    check("several", cache.get_many(["one", "two", "three"]), {"one": [1], "two": {"deep": 2}})
    check("added again", cache.add("one", 2), False)
    check("by a pattern", sorted(cache.keys("*o*")), ["count", "one", "two"])
    check("deleted", cache.delete_pattern("*o*"), 3)
    collections_of_django_redis(cache)


def collections_of_django_redis(cache):
    """Members and fields of values are objects of Python, as the cache encodes them."""
    pair = ("a", 1)
    check("added", cache.sadd("odd", 1, 3, 5, pair), 4)
    cache.sadd("prime", 2, 3, 5)
    check("members", cache.smembers("odd"), {1, 3, 5, pair})
    check("is a member", (cache.sismember("odd", pair), cache.sismember("odd", 2)), (True, False))
    check("are members", cache.smismember("odd", 1, 2), [True, False])
    check("in both", cache.sinter("odd", "prime"), {3, 5})
    check("in one", cache.sunion("odd", "prime"), {1, 2, 3, 5, pair})
    check("stored", cache.sdiffstore("rest", "odd", "prime"), 2)
    check("moved", cache.smove("rest", "prime", pair), True)
    check("the rest", cache.smembers("rest"), {1})
    check("iterated", set(cache.sscan_iter("prime")), {2, 3, 5, pair})
    check("removed", cache.srem("prime", 2, 4), 1)
    check("popped", cache.spop("rest"), 1)
    check("nothing is left", cache.has_key("rest"), False)

    check("a new field", cache.hset("person", "name", pair), 1)
    check("an old field", cache.hset("person", "name", "Ada"), 0)
    cache.hset("person", "year", 1815)
    check("fields", (cache.hlen("person"), sorted(cache.hkeys("person"))), (2, ["name", "year"]))
    check("deleted", cache.hdel("person", "year"), 1)
    check("has it", (cache.hexists("person", "name"), cache.hexists("person", "year")), (True, False))

    check("ranked", cache.zadd("scores", {"Ada": 3, "Bob": 1, pair: 2}), 3)
    check("in order", cache.zrange("scores", 0, -1), ["Bob", pair, "Ada"])
    check("backwards", cache.zrevrange("scores", 0, 0, withscores=True), [("Ada", 3.0)])
    check("raised", cache.zincrby("scores", 2.5, "Bob"), 3.5)
    check("between", cache.zrangebyscore("scores", 2, 3), [pair, "Ada"])
    check("counted", (cache.zcount("scores", 3, 4), cache.zcard("scores")), (2, 3))
    check("a rank", (cache.zrank("scores", "Bob"), cache.zscore("scores", "Bob")), (2, 3.5))
    check("the least", cache.zpopmin("scores"), (pair, 2.0))
    check("removed", (cache.zremrangebyscore("scores", 3, 3), cache.zrem("scores", "Bob")), (1, 1))


def limits_of_limits(client):
    from limits import RateLimitItemPerDay
    from limits.storage import storage_from_string
    from limits.strategies import (
        FixedWindowRateLimiter,
        MovingWindowRateLimiter,
        SlidingWindowCounterRateLimiter,
    )

    port = client.connection_pool.connection_kwargs["port"]
    storage = storage_from_string(f"redis://127.0.0.1:{port}")
    allowed = 100
    for strategy in [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter]:
        limiter, item = strategy(storage), RateLimitItemPerDay(allowed)
        name = strategy.__name__
        hits = in_threads(lambda: limiter.hit(item, name))
        check(f"hits of {name}", hits.count(True), allowed)
        check(f"another hit of {name}", limiter.test(item, name), False)
        check(f"the rest of {name}", limiter.get_window_stats(item, name).remaining, 0)
        check(f"hits of another caller of {name}", limiter.hit(item, name + " again"), True)
        limiter.clear(item, name)
        check(f"hits of {name} after it was cleared", limiter.hit(item, name), True)


def expiries_with_redis_py(client):
    client.config_set("notify-keyspace-events", "Ex")
    messages = client.pubsub(ignore_subscribe_messages=True)
    messages.psubscribe("__keyevent@*__:expired")
    messages.get_message(timeout=10)
    names = {f"session:{n}".encode() for n in range(100)}
    for name in names:
        client.set(name, "data", px=50)
    expired = set()
    while expired != names:
        message = messages.get_message(timeout=10)
        check("a message", message is not None, True)
        check("announced once", message["data"] in expired, False)
        expired.add(message["data"])


name, port = sys.argv[1], int(sys.argv[2])
globals()[name](redis.Redis("127.0.0.1", port))
print("done")
