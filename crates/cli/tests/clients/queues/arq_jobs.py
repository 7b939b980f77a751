"""arq: jobs, and the program that has workers execute them. Says "done" when all is as it should be."""

import asyncio
import time

from arq import Retry, create_pool
from arq.connections import RedisSettings
from arq.jobs import JobStatus

from workers import PATIENCE, PORT, Worker, check, check_done_once, client, done


async def add(context, one, other):
    done(f"{one} + {other}")
    return one + other


async def fails_twice(context):
    if context["job_try"] < 3:
        raise Retry()
    return context["job_try"]


async def fails(context):
    raise ValueError("on purpose")


async def waits(context):
    done("waits")
    await asyncio.sleep(PATIENCE)


class WorkerSettings:
    functions = [add, fails_twice, fails, waits]
    redis_settings = RedisSettings(port=PORT)
    poll_delay = 0.05
    allow_abort_jobs = True


async def jobs():
    pool = await create_pool(RedisSettings(port=PORT))

    async def result(job):
        return await job.result(timeout=PATIENCE, poll_delay=0.01)

    with Worker("arq", "arq_jobs.WorkerSettings"), Worker("arq", "arq_jobs.WorkerSettings"):
        asked = [await pool.enqueue_job("add", number, 1) for number in range(100)]
        check("sums", [await result(job) for job in asked], list(range(1, 101)))
        # Two workers compete for each job by a key that both of them watch.
        check_done_once(f"{number} + 1" for number in range(100))

        job = await pool.enqueue_job("add", 5, 5, _job_id="unique", _defer_by=0.5)
        check("the same job again", await pool.enqueue_job("add", 5, 5, _job_id="unique"), None)
        check("its status", await job.status(), JobStatus.deferred)
        begun = time.monotonic()
        check("a sum later", await result(job), 10)
        assert time.monotonic() - begun >= 0.4, "it was not postponed"
        check_done_once(["5 + 5"])

        check("attempts", await result(await pool.enqueue_job("fails_twice")), 3)
        try:
            await result(await pool.enqueue_job("fails"))
            raise AssertionError("a failure was not reported")
        except ValueError as error:
            check("the failure", str(error), "on purpose")

        job = await pool.enqueue_job("waits")
        while await job.status() != JobStatus.in_progress or not client.exists("done"):
            await asyncio.sleep(0.01)
        check("aborted", await job.abort(timeout=PATIENCE, poll_delay=0.01), True)
    check("jobs that are left", await pool.queued_jobs(), [])
    print("done")


def main():
    asyncio.run(jobs())
