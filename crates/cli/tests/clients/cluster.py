"""What redis-py does with a cluster: `cluster.py PORT PROTOCOL [CA]`, over TLS if there is an authority of
certificates. Says "done" when all is as it should be."""

import sys

import redis
from redis.cluster import ClusterNode, RedisCluster

port, protocol = int(sys.argv[1]), int(sys.argv[2])
tls = {"ssl": True, "ssl_ca_certs": sys.argv[3]} if len(sys.argv) > 3 else {}
NODES = 3
ALL = RedisCluster.PRIMARIES


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def aware():
    """The client that knows of clusters."""
    client = RedisCluster("127.0.0.1", port, decode_responses=True, protocol=protocol, **tls)
    check("nodes", len(client.get_nodes()), NODES)
    client.flushall(target_nodes=ALL)
    keys = [f"key:{number}" for number in range(300)]
    for key in keys:
        check("set", client.set(key, key.upper()), True)
    for key in keys:
        check("get", client.get(key), key.upper())
    owners = {client.get_node_from_key(key).port for key in keys}
    check("nodes that have keys", len(owners), NODES)
    check("dbsize", client.dbsize(target_nodes=ALL), len(keys))
    check("keys", sorted(client.keys("key:*", target_nodes=ALL)), sorted(keys))
    check("scan", sorted(client.scan_iter(match="key:*", count=50)), sorted(keys))
    check("exists", client.exists(*keys, "absent"), len(keys))
    check("mget", client.mget_nonatomic(keys[:20]), [key.upper() for key in keys[:20]])
    check("mset", all(client.mset_nonatomic({key: "again" for key in keys[:20]})), True)
    check("delete", client.delete(*keys[:100]), 100)
    check("a slot", client.cluster_keyslot("{user:1}.name"), client.keyslot("user:1"))
    counted = client.cluster_countkeysinslot(client.keyslot(keys[200]))
    check("keys of a slot", counted >= 1, True)

    with client.pipeline() as pipeline:
        for number in range(200):
            pipeline.incrby(f"counter:{number}", number)
        check("a pipeline", pipeline.execute(), list(range(200)))

    with client.pipeline(transaction=True) as block:
        block.set("{tag}a", "1")
        block.incr("{tag}a")
        block.get("{tag}a")
        check("a block", block.execute(), ["OK", 2, "2"])

    # A node that is not the key's sends the client to the one that is.
    owner = client.get_node_from_key("key:250").port
    other = next(node for node in client.get_nodes() if node.port != owner)
    found = client.execute_command("GET", "key:250", target_nodes=ClusterNode("127.0.0.1", other.port))
    check("after a redirect", found, "KEY:250")

    check("slots", len(client.cluster_slots()), NODES)
    check("shards", len(client.cluster_shards()), NODES)
    lines = client.cluster_nodes()
    check("lines", len(lines), NODES)
    check("all are connected", all(line["connected"] for line in lines.values()), True)
    info = client.cluster_info(target_nodes=RedisCluster.RANDOM)
    check("state", info["cluster_state"], "ok")


def plain():
    """The client that does not: whole transactions over any slots."""
    client = redis.Redis("127.0.0.1", port, decode_responses=True, protocol=protocol, **tls)
    keys = [f"plain:{number}" for number in range(50)]
    check("mset", client.mset({key: "0" for key in keys}), True)
    check("mget", client.mget(keys), ["0"] * len(keys))
    check("msetnx", client.msetnx({"plain:0": "x", "plain:new": "x"}), False)
    with client.pipeline(transaction=True) as block:
        block.watch(*keys[:5])
        values = [int(block.get(key)) for key in keys[:5]]
        block.multi()
        for key, value in zip(keys[:5], values):
            block.set(key, value + 1)
        check("a block", block.execute(), [True] * 5)
    with client.pipeline(transaction=True) as block:
        block.watch(keys[0], keys[1])
        RedisCluster("127.0.0.1", port, **tls).set(keys[1], "changed")
        block.multi()
        block.set(keys[0], "never")
        try:
            block.execute()
            raise AssertionError("the watched key has changed")
        except redis.WatchError:
            pass
    check("untouched", client.mget(keys[:2]), ["1", "changed"])
    check("delete", client.delete(*keys), len(keys))


aware()
plain()
print("done")
