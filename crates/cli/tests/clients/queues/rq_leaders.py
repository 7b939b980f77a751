"""RQ: a worker under a supervisor, which goes on although the leaders of its server are killed, until the key `over` is
there. Says "done" when each job has been done.

A worker of RQ ends when its connection is closed, unless it waits for a job at that time. A supervisor starts it
again."""

import time

import redis
from rq import Queue, Retry
from rq.intermediate_queue import IntermediateQueue
from rq.registry import FailedJobRegistry, StartedJobRegistry

from workers import PORT, URL, Worker, client, done, wait

BATCH = 10


def count(number):
    done(number)


def main():
    connection = redis.Redis(port=PORT)
    queue = Queue(connection=connection)
    failed = FailedJobRegistry(queue=queue)
    started = StartedJobRegistry(queue=queue)
    taken = IntermediateQueue(queue.key, connection)
    given = set()

    def are_all_done():
        if worker.process.poll() is not None:
            worker.start()
            # A job that the ended worker had begun is left over. The maintenance of RQ would take it for lost some
            # minutes later.
            started.cleanup(timestamp=time.time() + 10_000)
        # A job whose connection was lost on its way to the worker, or at its end, is left over. RQ's own maintenance
        # would give it again some minutes later.
        if len(queue) == 0 and started.get_job_count(cleanup=False) == 0:
            for job in taken.get_job_ids():
                taken.remove(job)
                queue.push_job_id(job)
        for job in failed.get_job_ids():
            failed.requeue(job)
        return given <= {int(number) for number in client.hkeys("done")}

    with Worker("rq.cli", "worker", "--url", URL) as worker:
        while not client.exists("over"):
            batch = range(len(given), len(given) + BATCH)
            given.update(batch)
            for number in batch:
                queue.enqueue(count, number, retry=Retry(max=100))
            wait("a batch of jobs is done", are_all_done)
    print("done")
