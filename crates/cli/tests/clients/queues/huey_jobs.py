"""Huey: tasks, and the program that has a consumer execute them. Says "done" when all is as it should be."""

import time

from huey import PriorityRedisHuey, RedisHuey
from huey.exceptions import TaskException

from workers import PATIENCE, URL, Worker, check, check_done_once, client, done, wait

huey = RedisHuey("jobs", url=URL)
priority = PriorityRedisHuey("urgent", url=URL)


@huey.task()
def add(one, other):
    done(f"{one} + {other}")
    return one + other


@huey.task(retries=2)
def fails_twice():
    attempts = client.incr("attempts")
    if attempts < 3:
        raise ValueError(f"attempt {attempts}")
    done(f"attempt {attempts}")


@huey.task()
def fails():
    raise ValueError("on purpose")


@huey.task()
@huey.lock_task("guard")
def guarded():
    done("guarded")


@priority.task()
def note(name):
    client.rpush("order", name)


def result(asked):
    return asked.get(blocking=True, timeout=PATIENCE)


def main():
    consumer = ("huey.bin.huey_consumer", "--workers", "4", "--scheduler-interval", "1")
    with Worker(*consumer, "huey_jobs.huey"):
        asked = [add(number, 1) for number in range(100)]
        check("sums", [result(one) for one in asked], list(range(1, 101)))
        check_done_once(f"{number} + 1" for number in range(100))

        check("a pipeline", huey.enqueue(add.s(1, 2).then(add, 3).then(add, 4)).get(True, PATIENCE), [3, 6, 10])
        check_done_once(["1 + 2", "3 + 3", "4 + 6"])

        # Each attempt that fails is a result, too.
        fails_twice()
        wait("the third attempt", lambda: client.exists("done"))
        check_done_once(["attempt 3"])
        try:
            raise AssertionError(f"a failure returned {result(fails())}")
        except TaskException as error:
            assert "on purpose" in str(error), error

        begun = time.monotonic()
        later = add.schedule((2, 2), delay=1)
        revoked = add.schedule((3, 3), delay=1)
        revoked.revoke()
        check("a sum later", result(later), 4)
        assert time.monotonic() - begun >= 0.9, "it was not postponed"
        wait("the revoked task is over", lambda: huey.scheduled_count() + huey.pending_count() == 0)
        check_done_once(["2 + 2"])

        with huey.lock_task("guard"):
            try:
                raise AssertionError(f"a locked task returned {result(guarded())}")
            except TaskException as error:
                assert "lock" in str(error), error
        check_done_once([])

    for rank in [1, 3, 2]:
        note(f"rank {rank}", priority=rank)
    with Worker(*consumer, "--workers", "1", "huey_jobs.priority"):
        wait("all are noted", lambda: client.llen("order") == 3)
    check("the order", client.lrange("order", 0, -1), ["rank 3", "rank 2", "rank 1"])
    print("done")
