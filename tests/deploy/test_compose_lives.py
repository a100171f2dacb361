"""What the stack outlives: a stop, a `down`, a kill; and that it loses nothing by it."""

import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from compose import ended
from processes import wait_until

from khot_client import FeatureSelection, KhotError, Progress

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

QUICK = FeatureSelection("digits", k=10, epochs=2, references=False)
LONG = FeatureSelection("digits", k=10, epochs=600, patience=0, references=False, seed=1)
KILLED_AT = 3  # epochs that LONG must have had, so that there is a checkpoint


def in_flight(stack, method: str) -> float:
    with urllib.request.urlopen(f"http://{stack.port('server', 9551)}/metrics") as page:
        text = page.read().decode()
    return float(re.search(rf'khot_requests_in_flight{{method="{method}"}} (\S+)', text)[1])


def under_way(stack) -> str:
    """The id of a long job that has had some epochs."""
    with stack.client() as client:
        job = client.submit(LONG)
        for event in job.watch():
            if isinstance(event, Progress) and event.epoch >= KILLED_AT:
                return job.id
    raise AssertionError("it ended before")


def test_a_stop_drains(stack):
    """The call under way is answered, the job goes back to the queue, and the status is 0."""
    job_id = under_way(stack)
    x = np.zeros(6000)  # three seconds of Brewer's design
    with stack.client() as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.sample, x, 3000, operator="brewer", timeout_s=60)
        wait_until(lambda: in_flight(stack, "Sample") == 1, "the call")
        assert not slow.done()
        stack("stop", "server")
        assert slow.result().z.sum() == 3000
    assert ended(stack.container("server")) == 0
    logs = stack.container("server").logs().decode()
    assert '"event": "draining"' in logs
    stack("start", "server")
    stack.wait_healthy("server")
    with stack.client() as client:
        attempts = client.job(job_id).attempts()
        assert [attempt.outcome for attempt in attempts][:1] == ["STOPPED"]
        wait_until(lambda: len(client.job(job_id).attempts()) == 2, "the next attempt")
        second = client.job(job_id).attempts()[1]
        assert second.first_step > 0, "it goes on from its checkpoint"
        client.job(job_id).cancel()


def test_data_survives_down_and_up(stack):
    with stack.client() as client:
        job = client.submit(QUICK, labels={"for": "down"})
        found = job.wait(timeout_s=120)
        files = {file.name: file.sha256 for file in job.artifacts()}
    before = stack.container("server").id
    stack("down")
    stack.up()
    assert stack.container("server").id != before
    with stack.client() as client:
        (listed,) = client.jobs(labels={"for": "down"})
        assert listed.id == job.id
        same = client.job(job.id)
        assert same.result().features.tolist() == found.features.tolist()
        assert {file.name: file.sha256 for file in same.artifacts()} == files
        assert client.submit(QUICK).wait(timeout_s=120).features.size == 10


def test_a_kill_loses_nothing_that_was_acknowledged(stack):
    """Submits from outside until the end; a job under way goes on, to the same bits."""
    short = FeatureSelection("digits", k=10, epochs=40, patience=0, references=False, seed=1)
    with stack.client() as client:
        whole = client.submit(short).wait(timeout_s=240)
        running = client.submit(short)
        for event in running.watch():
            if isinstance(event, Progress) and event.epoch >= KILLED_AT:
                break
        acknowledged, stop = [], threading.Event()

        def submit() -> None:
            with stack.client() as own:
                while not stop.is_set():
                    try:
                        acknowledged.append(own.submit(QUICK).id)
                    except KhotError:
                        return  # it is gone

        submitter = threading.Thread(target=submit)
        submitter.start()
        wait_until(lambda: len(acknowledged) >= 10, "some jobs")
        stack.container("server").kill()
        stop.set()
        submitter.join()
    assert ended(stack.container("server")) == 137
    stack.up()
    with stack.client() as client:
        there = {job.id for job in client.jobs()}
        assert set(acknowledged) <= there and len(acknowledged) >= 10
        again = client.job(running.id).wait(timeout_s=300)
        assert client.job(running.id).status().attempts == 2
        assert again.scores.tolist() == whole.scores.tolist()
        assert again.test == whole.test
        assert client.job(acknowledged[-1]).wait(timeout_s=300).features.size == 10


def test_what_ends_unasked_is_started_again(stack):
    """All its processes but the first are killed from within, and that one ends with them."""
    before = stack.container("server")
    before.exec_run(["sh", "-c", "kill -9 -1"])

    def again() -> bool:
        state = stack.container("server").attrs["State"]
        return state["Running"] and state["StartedAt"] != before.attrs["State"]["StartedAt"]

    wait_until(again, "its restart")
    assert stack.container("server").id == before.id
    stack.wait_healthy("server")
    with stack.client() as client:
        assert client.submit(QUICK).wait(timeout_s=300).features.size == 10
