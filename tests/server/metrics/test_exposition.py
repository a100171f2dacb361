"""The page of all metrics says what the library's own would."""

import math

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from khot_server.metrics import Metrics
from khot_server.metrics.exposition import Exposition


def read(page: bytes):
    """Every family by its name, with its samples in any order; NaN as a word, to be compared."""
    families = text_string_to_metric_families(page.decode())
    return {
        family.name: (
            family.type,
            family.documentation,
            {
                (sample.name, *sorted(sample.labels.items())): (
                    "NaN" if math.isnan(sample.value) else sample.value
                )
                for sample in family.samples
            },
        )
        for family in families
    }


def test_it_says_of_our_metrics_what_the_librarys_own_page_does():
    metrics = Metrics(["Relax", "Sample", "UploadDataset", "DownloadArtifact"])
    calls = metrics.of_method("Relax")
    calls.begin()
    calls.received(3000)
    calls.sent(300_000_000)
    calls.end("OK", 0.003)
    page = read(Exposition(metrics.registry).page())
    assert page == read(generate_latest(metrics.registry))
    kind, text, samples = page["khot_request_duration_seconds"]
    assert (kind, text) == ("histogram", "From a call's arrival to its end.")
    bucket = ("khot_request_duration_seconds_bucket", ("le", "0.005"), ("method", "Relax"))
    assert samples[bucket] == 1


def test_values_and_labels_of_every_kind_come_through():
    registry = CollectorRegistry()
    odd = 'a "quoted" back\\slash\nin two lines'
    gauge = Gauge("khot_g", odd, ["what"], registry=registry)
    for place, value in enumerate((0, -1.5, 1e300, 5e-324, 123_456_789, 1e16)):
        gauge.labels(f"{odd} {place}").set(value)
    gauge.labels("inf").set(math.inf)
    gauge.labels("-inf").set(-math.inf)
    gauge.labels("nan").set(math.nan)
    page = read(Exposition(registry).page())
    assert page == read(generate_latest(registry)) and len(page["khot_g"][2]) == 9


def test_lines_come_and_go_with_their_series():
    metrics = Metrics(["Relax"])
    exposition, losses = Exposition(metrics.registry), metrics.jobs._loss.values
    losses["a", "vae"] = 0.5
    assert b'khot_job_loss{job_id="a",kind="vae"} 0.5\n' in exposition.page()
    del losses["a", "vae"]
    losses["b", "vae"] = 0.25
    page = exposition.page()
    assert b'khot_job_loss{job_id="b",kind="vae"} 0.25\n' in page and b'job_id="a"' not in page
    assert not any("a" in key for key in exposition._kept), "nothing is kept of what is gone"


def test_some_may_be_asked_for_by_name():
    """Of our own instruments, too, which do not describe themselves to the library."""
    exposition = Exposition(Metrics(["Relax"]).registry)
    whole = exposition.page()
    some = read(exposition.page(["khot_requests_total", "khot_queue_wait_seconds"]))
    assert some.keys() == {"khot_requests", "khot_queue_wait_seconds"}
    assert some.items() <= read(whole).items()
    assert exposition.page(["khot_other"]) == b""
    assert exposition.page() == whole
