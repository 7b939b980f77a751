"""What redis-py does with messages of channels: `messages.py PORT`. Says "done" when all is as it should be."""

import queue
import sys

import redis

port = int(sys.argv[1])
MESSAGES = 500


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def next_message(pubsub):
    """Returns the next message that is no confirmation."""
    while True:
        message = pubsub.get_message(timeout=60)
        assert message is not None, "no message has come"
        if not message["type"].endswith("subscribe"):
            return message


for protocol in (2, 3):
    client = redis.Redis("127.0.0.1", port, protocol=protocol, decode_responses=True)
    pubsub = client.pubsub()
    pubsub.subscribe("news", "other")
    pubsub.psubscribe("n*")
    confirmed = [pubsub.get_message(timeout=60) for _ in range(3)]
    check("confirmations", [one["type"] for one in confirmed], ["subscribe", "subscribe", "psubscribe"])
    check("numbers", [one["data"] for one in confirmed], [1, 2, 3])
    check("receivers", client.publish("news", "hello"), 2)
    both = sorted((next_message(pubsub) for _ in range(2)), key=lambda one: one["type"])
    check("message", (both[0]["type"], both[0]["channel"], both[0]["data"]), ("message", "news", "hello"))
    check("pattern", (both[1]["type"], both[1]["pattern"], both[1]["data"]), ("pmessage", "n*", "hello"))
    check("channels", sorted(client.pubsub_channels()), ["news", "other"])
    check("subscribers", client.pubsub_numsub("news", "absent"), [("news", 1), ("absent", 0)])
    check("patterns", client.pubsub_numpat(), 1)
    if protocol == 2:
        # With RESP3 the library takes the status for a message.
        pubsub.ping()
        check("pong", next_message(pubsub)["type"], "pong")
    pubsub.punsubscribe("n*")
    pubsub.unsubscribe()
    while pubsub.subscribed:
        assert pubsub.get_message(timeout=60) is not None, "no confirmation has come"

    # A thread of the library calls handlers, in the order of the messages.
    got = queue.Queue()
    pubsub.subscribe(**{"numbers": lambda message: got.put(int(message["data"]))})
    thread = pubsub.run_in_thread(sleep_time=0.1)
    while client.pubsub_numsub("numbers") != [("numbers", 1)]:
        pass
    with client.pipeline(transaction=False) as pipeline:
        for number in range(MESSAGES):
            pipeline.publish("numbers", number)
        check("receivers", set(pipeline.execute()), {1})
    check("numbers", [got.get(timeout=60) for _ in range(MESSAGES)], list(range(MESSAGES)))
    with client.pipeline(transaction=True) as block:
        block.set("numbers", 1)
        block.publish("numbers", -1)
        check("block", block.execute()[0], True)
    check("from a block", got.get(timeout=60), -1)
    thread.stop()
    thread.join(60)
    assert not thread.is_alive(), "the thread has not stopped"

print("done")
