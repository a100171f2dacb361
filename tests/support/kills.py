"""Jobs on a real server whose processes are killed under them, and what must be true after."""

import contextlib
import os
import random
import re
import signal
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle, pairwise

from processes import Server, alive, wait_until

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb
from khot_server.jobs.files import job_directory, log_name
from khot_server.jobs.states import ENDED, JobState
from khot_server.jobs.store import DATABASE_NAME, JobStore

TENANT = "local"
FLAGS = ("--lease-s", "1", "--heartbeat-s", "0.2", "--job-backoff-s", "0", "--checkpoint-s", "0")
FLAGS += ("--job-slots", "2", "--warm-attempts", "true")
INTERVAL = 10  # steps between checkpoints, where they are wanted as often as can be
ENDS_S = 240.0


def selection(**fields):
    spec = spec_pb.FeatureSelection(
        dataset="digits", epochs=25, batch_size=64, patience=0, references=False, **fields
    )
    spec.hidden.widths.append(32)
    return spec_pb.JobSpec(feature_selection=spec)


def vae(**fields):
    spec = spec_pb.Vae(
        dataset="digits", latents=3, n=8, epochs=12, batch_size=64, patience=0, **fields
    )
    for layers in (spec.encoder, spec.decoder):
        layers.widths.append(32)
    return spec_pb.JobSpec(vae=spec)


def regression(**fields):
    spec = spec_pb.SparseRegression(dataset="kuramoto-sivashinsky", k=3, steps=4000, **fields)
    return spec_pb.JobSpec(sparse_regression=spec)


# All kinds and several estimators, each some seconds of training.
SPECS = {
    "selection by pi_st": selection(k=10, estimator="pi_st"),
    "selection by simple": selection(k=10, estimator="simple", seed=1),
    "selection by imle": selection(k=5, estimator="imle"),
    "selection that learns k": selection(penalty=0.01),
    "vae by pi_st": vae(k=2),
    "vae by score_function": vae(k=2, estimator="score_function", prior="PRIOR_EXACT"),
    "regression by simple": regression(estimator="simple"),
}


@dataclass
class Found:
    """What is compared between a disturbed and an undisturbed run of a spec."""

    result: object
    series: dict
    model: str


@dataclass
class Town:
    """A server with jobs, that can be killed in part or whole.

    Attributes:
        victim: the job that the next kill is about.
        struck: of each kill, the step at which its victim was, of how many; None if the victim was
            not in the midst of a training.
    """

    state_dir: object
    server: Server = field(init=False)
    submitted: dict = field(default_factory=dict)
    struck: list = field(default_factory=list)
    victim: str = ""

    def __post_init__(self):
        self.store = JobStore(self.state_dir / DATABASE_NAME)
        self.dice = random.Random(0)
        self.start()

    def start(self):
        self.server = Server(self.state_dir, *FLAGS).wait_until_serving()

    def close(self):
        self.server.end()
        self.store.close()

    def submit(self, name, request_id):
        request = pb.SubmitJobRequest(request_id=request_id, spec=SPECS[name])
        job = self.server.jobs.SubmitJob(request, wait_for_ready=True, timeout=60).job
        self.submitted[job.id] = name

    def kill(self, target, count):
        """Kill a part `count` times, each time some steps after the last."""
        names = cycle(SPECS)

        def candidates():
            while len(self.live()) < 2:
                self.submit(next(names), f"{target}-{len(self.submitted)}")
            return self.training()

        while len(self.struck) < count:
            wait_until(candidates, "a job in training", ENDS_S)
            found = candidates()
            if found and self.comes_on(self.dice.choice(found), self.dice.randint(1, 150)):
                self.strike(target)
        self.finish()

    def comes_on(self, victim, steps):
        """Wait until the victim has come so many steps further; whether it is training still."""
        self.victim, step = victim.id, victim.progress.step + steps

        def due():
            job = self.get(victim.id)
            return not self.is_training(job) or job.progress.step >= step

        wait_until(due, "its step", ENDS_S)
        return self.is_training(self.get(victim.id))

    def strike(self, target):
        """Kill it now."""
        job_id = self.victim
        pids = self.server.pids()
        if target == "attempt":
            started = rf"attempt_started .*child='pid (\d+)' job={job_id} "
            pids["attempt"] = int(re.findall(started, "\n".join(self.server.lines))[-1])
        job = self.get(job_id)
        where = (job.progress.step, job.progress.total_steps) if self.is_training(job) else None
        if target == "all":
            self.server.end()
            self.start()
        else:
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(pids[target], signal.SIGKILL)
        self.struck.append(where)
        if target != "all":
            wait_until(lambda: not alive(pids[target]), "its end")
        if target == "api":
            wait_until(lambda: self.server.is_serving("khot.v1.JobService"), "the next one")

    def live(self):
        return [job for job_id in self.submitted if (job := self.get(job_id)).state not in ENDED]

    def get(self, job_id):
        return self.store.get(TENANT, job_id)

    def training(self):
        """The jobs that are in the midst of their training."""
        return [job for job in self.live() if self.is_training(job)]

    def is_training(self, job):
        """Whether its attempt has done some steps, and not all."""
        if job.state is not JobState.RUNNING or job.progress is None:
            return False
        attempt = self.store.attempts(TENANT, job.id)[-1]
        return attempt.first_step < attempt.last_step < job.progress.total_steps

    def finish(self):
        wait_until(lambda: not self.live(), "all jobs to end", ENDS_S)

    def found(self, job_id):
        job = self.get(job_id)
        assert job.state is JobState.SUCCEEDED, job
        files = {file.name: file.sha256 for file in self.store.artifacts(TENANT, job_id)}
        series = self.store.series(TENANT, job_id)
        return Found(job.result, series, files["model.safetensors"])

    def check(self, undisturbed):
        """Every job ended as one that nobody disturbed, and did little more for it."""
        for job_id, name in self.submitted.items():
            wanted, found = undisturbed[name], self.found(job_id)
            assert found.result == wanted.result, name
            assert found.series == wanted.series, "one point per step, of the same value"
            assert found.model == wanted.model, "the very same parameters"
            attempts = self.store.attempts(TENANT, job_id)
            for before, after in pairwise(attempts):
                assert before.outcome in ("LOST", "STOPPED"), before
                assert before.last_step - after.first_step <= INTERVAL, (before, after)
            assert attempts[-1].outcome == "SUCCEEDED"
            self.check_alone(job_id, len(attempts))

    def check_alone(self, job_id, attempts):
        """No attempt said anything after the next had begun."""
        spans = [self.span(job_id, number) for number in range(1, attempts + 1)]
        known = [span for span in spans if span]
        for (_, end), (begin, _) in pairwise(known):
            assert end <= begin, f"{job_id}: two attempts at once"

    def span(self, job_id, number):
        path = job_directory(self.state_dir, job_id) / log_name(number)
        if not path.exists():
            return None
        stamps = re.findall(r"^(\d{4}-\d\d-\d\dT[\d:.]+)Z ", path.read_text(), re.MULTILINE)
        times = [datetime.fromisoformat(stamp) for stamp in stamps]
        return (times[0], times[-1]) if times else None
