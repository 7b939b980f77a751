"""RQ: jobs, and the program that has workers execute them. Says "done" when all is as it should be."""

import os
import signal
import time
from datetime import timedelta

import redis
from rq import Queue, Retry
from rq.job import Callback, JobStatus
from rq.registry import FailedJobRegistry, ScheduledJobRegistry, StartedJobRegistry
from rq.worker import Worker as RqWorker

from workers import PATIENCE, PORT, URL, Worker, check, check_done_once, client, done, wait


def add(one, other):
    done(f"{one} + {other}")
    return one + other


def fails_unless_healed():
    if not client.exists("healed"):
        raise ValueError("on purpose")
    return "healed"


def fails_twice():
    attempts = client.incr("attempts")
    if attempts < 3:
        raise ValueError(f"attempt {attempts}")
    return attempts


def is_killed_once():
    if done("killed") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def hangs_once():
    if done("hangs") == 1:
        time.sleep(PATIENCE)
    return "done"


def succeeded(job, connection, value):
    connection.set("succeeded", value)


def finished(job):
    """Waits until a job has ended well, and returns its result."""
    ends = [JobStatus.FINISHED, JobStatus.FAILED]
    wait(f"{job.func_name} ends", lambda: job.get_status() in ends)
    check(f"the end of {job.func_name}", job.get_status(), JobStatus.FINISHED)
    return job.return_value()


def main():
    connection = redis.Redis(port=PORT)
    queue = Queue(connection=connection)
    failed = FailedJobRegistry(queue=queue)
    worker = ("rq.cli", "worker", "--with-scheduler", "--url", URL)
    with Worker(*worker) as first:
        asked = [queue.enqueue(add, number, 1) for number in range(20)]
        check("sums", [finished(job) for job in asked], list(range(1, 21)))
        check_done_once(f"{number} + 1" for number in range(20))

        job = queue.enqueue(fails_unless_healed)
        wait("it fails", lambda: job.id in failed.get_job_ids())
        assert "on purpose" in job.latest_result().exc_string
        client.set("healed", "yes")
        failed.requeue(job)
        check("a job that was given again", finished(job), "healed")
        check("failed jobs", failed.get_job_ids(), [])

        job = queue.enqueue(fails_twice, retry=Retry(max=2))
        check("attempts", finished(job), 3)
        job = queue.enqueue(is_killed_once, retry=Retry(max=1))
        check("a job whose process was killed", finished(job), "survived")
        check("its executions", client.hget("done", "killed"), "2")
        client.delete("done")

        job = queue.enqueue_in(timedelta(seconds=1), add, 2, 2, on_success=Callback(succeeded))
        then = queue.enqueue(add, 3, 3, depends_on=job)
        check("scheduled jobs", ScheduledJobRegistry(queue=queue).get_job_ids(), [job.id])
        check("a job that depends on another", then.get_status(), JobStatus.DEFERRED)
        check("a job later", (finished(job), finished(then)), (4, 6))
        check("what its callback has set", client.get("succeeded"), "4")
        check_done_once(["2 + 2", "3 + 3"])

        lost = queue.enqueue(hangs_once, retry=Retry(max=1))
        wait("the job hangs", lambda: client.hget("done", "hangs") == "1")
        first.kill()
    check("jobs of the killed worker", StartedJobRegistry(queue=queue).get_job_ids(), [lost.id])
    # The maintenance of another worker does the same, some minutes later.
    StartedJobRegistry(queue=queue).cleanup(timestamp=time.time() + 10_000)
    with Worker(*worker, "--burst") as another:
        check("the job of a killed worker", finished(lost), "done")
        check("the end of a worker that has no more jobs", another.process.wait(PATIENCE), 0)
    check("jobs that are left", (len(queue), failed.get_job_ids()), (0, []))
    check("workers", [one.state for one in RqWorker.all(connection=connection)].count("busy"), 1)
    print("done")
