"""Starts workers of job queues as processes, and counts what their jobs do. The port of the server is in the
environment variable PORT."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import redis

PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}/0"
# Seconds after which a condition counts as one that never holds.
PATIENCE = 60

client = redis.Redis(port=PORT, decode_responses=True)


def done(job):
    """Counts one more execution of a job."""
    return client.hincrby("done", job, 1)


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def check_done_once(jobs):
    """Checks that exactly these jobs have been done, each of them once, and forgets them."""
    check("jobs that were done", client.hgetall("done"), {job: "1" for job in jobs})
    client.delete("done")


def wait(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


class Worker:
    """A process `python3 -m ARGUMENTS` with children of its own. All of them end with the `with` block."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.output = tempfile.TemporaryFile()
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.arguments],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self):
        """Kills the worker and its children as a crash would."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.kill()
        if kind is not None:
            self.output.seek(0)
            sys.stderr.write(self.output.read().decode(errors="replace"))


# An end by the signal leaves the `with` blocks, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
