"""What redis-py does over TLS: `tls.py PORT CA [CERTIFICATE KEY]`. Says "done" when all is as it should be."""

import sys
import threading

import redis

port, ca = int(sys.argv[1]), sys.argv[2]
own = dict(zip(("ssl_certfile", "ssl_keyfile"), sys.argv[3:5]))
ROUNDS, THREADS = 50, 4


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def connect(protocol):
    return redis.Redis("127.0.0.1", port, ssl=True, ssl_ca_certs=ca, protocol=protocol, decode_responses=True, **own)


for protocol in (2, 3):
    client = connect(protocol)
    check("ping", client.ping(), True)
    long = "0123456789" * 100_000
    check("set", client.set("py:long", long), True)
    check("get", client.get("py:long"), long)
    with client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.set(f"py:{number}", number)
        check("pipeline", pipeline.execute(), [True] * 1000)
    check("mget", client.mget(*(f"py:{number}" for number in range(1000))), [str(number) for number in range(1000)])

    def count():
        own_client = connect(protocol)
        for _ in range(ROUNDS):
            own_client.incr("py:count")
            # The next command makes a connection.
            own_client.connection_pool.disconnect()

    threads = [threading.Thread(target=count) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("count", client.get("py:count"), str(ROUNDS * THREADS))
    check("flushall", client.flushall(), True)
print("done")
