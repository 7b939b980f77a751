"""Celery: tasks, and the program that has workers execute them. Says "done" when all is as it should be."""

import os
import time

from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError

from workers import PATIENCE, URL, Worker, check, check_done_once, client, done, wait

app = Celery("jobs", broker=URL, backend=URL)
if "IMPATIENT" in os.environ:
    # A worker takes over the tasks that others have not acknowledged for a second, and looks for such all the time.
    app.conf.broker_transport_options = {
        "visibility_timeout": 1,
        "unacked_restore_interval": 0.1,
        "unacked_restore_throttle": 1,
    }


@app.task
def add(one, other):
    done(f"{one} + {other}")
    return one + other


@app.task
def total(numbers):
    done("total")
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def fails_twice(self):
    attempts = client.incr("attempts")
    if attempts < 3:
        raise self.retry(countdown=0)
    return attempts


@app.task
def fails():
    raise ValueError("on purpose")


@app.task(acks_late=True)
def hangs_once():
    if done("hangs once") == 1:
        time.sleep(PATIENCE)
    return "done"


def result(asked):
    return asked.get(timeout=PATIENCE)


def main():
    worker = ("celery", "-A", "celery_jobs", "worker", "--concurrency", "2", "--loglevel", "INFO")
    with Worker(*worker, "--hostname", "one@kumiki") as first:
        asked = [add.delay(number, 1) for number in range(100)]
        check("sums", [result(one) for one in asked], list(range(1, 101)))
        check_done_once(f"{number} + 1" for number in range(100))

        many = group(add.s(number, number) for number in range(20))
        check("a group", result(many.delay()), list(range(0, 40, 2)))
        check_done_once(f"{number} + {number}" for number in range(20))
        check("a chord", result(chord(many)(total.s())), sum(range(0, 40, 2)))
        check_done_once(["total", *(f"{number} + {number}" for number in range(20))])
        check("a chain", result(chain(add.s(1, 2), add.s(3), add.s(4)).delay()), 10)
        check_done_once(["1 + 2", "3 + 3", "6 + 4"])

        check("attempts", result(fails_twice.delay()), 3)
        failed = fails.delay()
        wait("the failure", failed.ready)
        check("the failure", (failed.state, str(failed.result)), ("FAILURE", "on purpose"))

        begun = time.monotonic()
        check("a sum later", result(add.apply_async((2, 2), countdown=1)), 4)
        assert time.monotonic() - begun >= 0.9, "it was not postponed"
        check_done_once(["2 + 2"])

        # Commands for workers, by publish and subscribe.
        check("workers", app.control.ping(timeout=5, limit=1), [{"one@kumiki": {"ok": "pong"}}])
        revoked = add.apply_async((3, 3), countdown=3)
        revoked.revoke()
        try:
            raise AssertionError(f"a revoked task returned {result(revoked)}")
        except TaskRevokedError:
            check_done_once([])

        lost = hangs_once.delay()
        wait("the task hangs", lambda: client.hget("done", "hangs once") == "1")
        first.kill()
    # A task that its worker has not acknowledged in time is given to another one.
    os.environ["IMPATIENT"] = "1"
    with Worker(*worker, "--hostname", "another@kumiki"):
        check("the task of a killed worker", result(lost), "done")
        wait("nothing is left", lambda: client.exists("celery", "unacked", "unacked_index") == 0)
    print("done")
