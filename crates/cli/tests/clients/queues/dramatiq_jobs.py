"""Dramatiq: actors, and the program that has workers execute their messages. Says "done" when all is as it
should be."""

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from workers import PATIENCE, URL, Worker, check, check_done_once, client, done, wait

# Each request looks for dead workers; those are silent for a second.
broker = RedisBroker(url=URL, heartbeat_timeout=1000, maintenance_chance=1_000_000)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def add(one, other):
    done(f"{one} + {other}")
    return one + other


@dramatiq.actor(store_results=True, min_backoff=10, max_backoff=20)
def fails_twice():
    attempts = client.incr("attempts")
    if attempts < 3:
        raise ValueError(f"attempt {attempts}")
    return attempts


@dramatiq.actor(max_retries=0)
def fails():
    raise ValueError("on purpose")


@dramatiq.actor(store_results=True)
def hangs_once():
    if done("hangs") == 1:
        time.sleep(PATIENCE)
    return "done"


def result(message):
    return message.get_result(block=True, timeout=PATIENCE * 1000)


def main():
    worker = ("dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "4")
    with Worker(*worker) as first:
        asked = [add.send(number, 1) for number in range(100)]
        check("sums", [result(message) for message in asked], list(range(1, 101)))
        check_done_once(f"{number} + 1" for number in range(100))

        group = dramatiq.group(add.message(number, number) for number in range(20)).run()
        results = list(group.get_results(block=True, timeout=PATIENCE * 1000))
        check("a group", results, list(range(0, 40, 2)))
        check_done_once(f"{number} + {number}" for number in range(20))
        pipeline = (add.message(1, 2) | add.message(3) | add.message(4)).run()
        check("a pipeline", result(pipeline), 10)
        # A result is the last argument of the next actor's message, or the first one.
        check("jobs of the pipeline", len(client.hgetall("done")), 3)
        client.delete("done")

        check("attempts", result(fails_twice.send()), 3)
        fails.send()
        wait("a dead letter", lambda: client.zcard("dramatiq:default.XQ") == 1)

        begun = time.monotonic()
        check("a sum later", result(add.send_with_options(args=(2, 2), delay=500)), 4)
        assert time.monotonic() - begun >= 0.45, "it was not postponed"
        check_done_once(["2 + 2"])

        lost = hangs_once.send()
        wait("the job hangs", lambda: client.hget("done", "hangs") == "1")
        first.kill()
    with Worker(*worker):
        check("the job of a killed worker", result(lost), "done")
        broker.join("default", timeout=PATIENCE * 1000)
    check("messages that are left", client.exists("dramatiq:default", "dramatiq:default.msgs"), 0)
    print("done")
