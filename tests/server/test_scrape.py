"""A real scrape of a real server: every metric is there, and the right ones have moved."""

import shutil
import subprocess
import urllib.request
from pathlib import Path

import grpc
import jobs
import pytest
import trustme
from calls import quick
from processes import Server, wait_until
from prometheus_client.parser import text_string_to_metric_families

from khot_proto.v1 import job_service_pb2 as jobs_pb
from khot_server.metrics.certificate import expiry
from khot_server.metrics.definitions import DEFINITIONS

# There only with a GPU, with TLS, or while a job runs.
SOMETIMES = (
    "khot_gpu_",
    "khot_certificate_",
    "khot_job_loss",
    "khot_job_progress",
    "khot_job_last",
)
EPOCHS = 3


class Scrape:
    """The page as it was."""

    def __init__(self, server: Server) -> None:
        with urllib.request.urlopen(f"{server.metrics_url}/metrics", timeout=10) as page:
            self.text = page.read().decode()
        self.families = list(text_string_to_metric_families(self.text))
        samples = [sample for family in self.families for sample in family.samples]
        self.values = {(s.name, *sorted(s.labels.values())): s.value for s in samples}

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        """The series of a name and the values of its labels, sorted."""
        return self.values[(key,) if isinstance(key, str) else key]


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory):
    """What a server told before and after some calls and a job, and when it was idle."""
    state_dir = tmp_path_factory.mktemp("state")
    # checkpoints as often as can be: a quick machine would end the job before it is time for one
    server = Server(state_dir, "--checkpoint-s", "0").wait_until_serving()
    try:
        before = Scrape(server)
        server.khot.Relax(quick(rows=5), timeout=30)
        server.khot.Relax(quick(), timeout=30)
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            server.jobs.GetJob(jobs_pb.GetJobRequest(job_id="none"), timeout=30)
        spec = jobs.selection(epochs=EPOCHS, patience=0, estimator="pi_st")
        job = jobs.ended(server, jobs.submit(server, spec).id)
        done = ("khot_jobs_ended_total", "feature_selection", "succeeded")
        wait_until(lambda: Scrape(server)[done], "the end to be counted")
        used = ("khot_process_cpu_seconds_total", "attempt")
        wait_until(lambda: Scrape(server)[used], "the attempt to be waited for by its runner")
        files = jobs.get(server, job.id)
        assert files.state == jobs_pb.JOB_STATE_SUCCEEDED
        yield before, Scrape(server)
        assert server.stop() == 0
    finally:
        server.end()


def test_every_metric_is_there_and_no_other(scrapes):
    defined = {(d.name.removesuffix("_total"), d.kind) for d in DEFINITIONS}
    for scrape in scrapes:
        assert {(family.name, family.type) for family in scrape.families} == defined
        empty = {family.name for family in scrape.families if not family.samples}
        assert all(name.startswith(SOMETIMES) for name in empty)


def test_every_series_but_those_by_operator_in_training_is_there_from_the_start(scrapes):
    before, after = scrapes
    assert before.values.keys() == after.values.keys()


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")
def test_promtool_finds_nothing_to_say(scrapes):
    for scrape in scrapes:
        command = ["promtool", "check", "metrics"]
        done = subprocess.run(
            command, input=scrape.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_calls_and_batches_are_counted(scrapes):
    _, after = scrapes
    assert after["khot_requests_total", "OK", "Relax"] == 2
    assert after["khot_requests_total", "GetJob", "NOT_FOUND"] == 1
    assert after["khot_request_message_bytes_count", "Relax"] == 2
    assert after["khot_response_message_bytes_sum", "Relax"] > 6 * 40
    assert after["khot_rows_total", "sigmoid_topk"] == after["khot_batch_rows_sum"] == 6
    assert after["khot_batch_scores_sum"] == 60
    assert after["khot_root_residual_count", "serving", "sigmoid_topk"] == 6
    assert after["khot_root_residual_bucket", "1e-05", "serving", "sigmoid_topk"] == 6
    assert after["khot_root_nonconverged_rows_total", "serving", "sigmoid_topk"] == 0
    assert after["khot_engine_up"] == after["khot_engine_info", "cpu"] == 1
    assert after["khot_engine_info", "cuda"] == 0 == after["khot_engine_losses_total"]


def test_a_job_is_counted_with_its_epochs_rows_roots_and_checkpoints(scrapes):
    before, after = scrapes
    kind = "feature_selection"
    assert after["khot_jobs", "SUCCEEDED", kind] == after["khot_jobs_submitted_total", kind] == 1
    assert after["khot_attempts_total", "succeeded"] == 1
    assert after["khot_job_epochs_total", kind] == EPOCHS
    examples = after["khot_job_rows_total", kind] / EPOCHS
    assert examples == int(examples) and 1200 < examples < 1300, "digits, less what is held back"
    assert after["khot_root_iterations_count", "pi_st", "training"] > 0
    assert after["khot_checkpoint_seconds_count"] >= 1
    assert after["khot_store_seconds_count", "write"] > before["khot_store_seconds_count", "write"]


def test_the_machine_and_the_processes_are_told_of(scrapes):
    before, after = scrapes
    used = "khot_process_cpu_seconds_total"
    for name in ("supervisor", "api", "engine", "runner", "attempt"):
        assert after[used, name] >= before[used, name]
        if name != "attempt":
            assert before["khot_process_resident_memory_bytes", name] > 10 << 20
    assert after[used, "attempt"] > 0.5, "one that has ended is not forgotten"
    free, size = after["khot_state_free_bytes"], after["khot_state_size_bytes"]
    assert 0 < free < size
    assert 0 < after["khot_machine_memory_available_bytes"] < after["khot_machine_memory_bytes"]


def test_the_end_of_the_certificate_is_told_where_there_is_one(start, tmp_path):
    issued = trustme.CA().issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    Path(cert).write_bytes(issued.cert_chain_pems[0].bytes())
    Path(key).write_bytes(issued.private_key_pem.bytes())
    server = start("--tls-cert", str(cert), "--tls-key", str(key))
    found = Scrape(server)["khot_certificate_expiry_timestamp_seconds"]
    assert found == expiry(cert.read_text())
