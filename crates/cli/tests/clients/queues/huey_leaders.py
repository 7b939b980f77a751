"""Huey: a consumer that goes on although the leaders of its server are killed, until the key `over` is there. Says
"done" when each task has been done."""

from huey import RedisHuey
from huey.exceptions import HueyException
from redis.exceptions import ConnectionError

from workers import URL, Worker, client, done, wait

# Seconds after which a task counts as lost: a consumer that loses the reply with a task does not do it.
LOST = 2

huey = RedisHuey("jobs", url=URL)


@huey.task()
def add(one, other):
    done(f"{one} + {other}")
    return one + other


def is_done(number):
    try:
        return add(number, 1).get(blocking=True, timeout=LOST) == number + 1
    except (HueyException, ConnectionError):
        return False


def main():
    consumer = ("huey.bin.huey_consumer", "--workers", "4", "huey_leaders.huey")
    with Worker(*consumer) as worker:
        number = 0
        while not client.exists("over"):
            wait("a task is done", lambda: is_done(number))
            number += 1
        assert worker.process.poll() is None, "the consumer has ended"
    print("done")
