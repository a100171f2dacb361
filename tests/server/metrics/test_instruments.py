"""Instruments: what they count is what the library's own would have counted."""

import random

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Theirs

from khot_server.metrics.definitions import BY_NAME, DEFINITIONS
from khot_server.metrics.instruments import Histogram, Instruments, Series

RESIDUAL = BY_NAME["khot_root_residual"]
PAIR = ("sigmoid_topk", "serving")


def values(count: int) -> list[float]:
    """Of every size, and the very bounds among them."""
    chance = random.Random(0)
    return [*RESIDUAL.bounds, *(10 ** chance.uniform(-18, 2) for _ in range(count)), 0.0]


def buckets(registry: CollectorRegistry, name: str) -> dict[str, float]:
    (family,) = (f for f in registry.collect() if f.name == name)
    return {s.labels["le"]: s.value for s in family.samples if s.name == f"{name}_bucket"}


def test_a_histogram_counts_as_the_librarys_own_does():
    registry, ours = CollectorRegistry(), Instruments()
    theirs = Theirs(RESIDUAL.name, "x", registry=registry, buckets=RESIDUAL.bounds)
    mine = ours.histogram("root_residual", [PAIR]).of(*PAIR)
    for value in values(1000):
        theirs.observe(value)
        mine.observe(value)
    assert buckets(ours.registry, RESIDUAL.name) == buckets(registry, RESIDUAL.name)


def test_many_values_at_once_are_counted_as_one_after_the_other():
    one, all_ = Series(RESIDUAL.bounds), Series(RESIDUAL.bounds)
    for value in values(1000):
        one.observe(value)
    all_.observe_all(np.array(values(1000)))
    all_.observe_all([0.5])
    one.observe(0.5)
    assert all_.counts == one.counts and all_.sum == pytest.approx(one.sum)


def test_a_value_many_times_is_counted_as_often():
    series = Series((1.0, 2.0))
    series.observe(2.0, 3)
    series.observe(5.0, 4)
    assert (series.counts, series.sum) == ([0, 3, 4], 26.0)


def test_a_series_is_there_before_anything_was_counted():
    made = Instruments()
    made.histogram("root_residual", [PAIR])
    made.tally("jobs_submitted_total", [("vae",)])
    page = generate_latest(made.registry).decode()
    assert 'khot_jobs_submitted_total{kind="vae"} 0.0' in page
    assert 'khot_root_residual_bucket{le="1e-16",operator="sigmoid_topk",source="serving"} 0.0' in (
        page
    )


def test_what_is_new_begins_at_0_and_what_is_there_stays():
    tally = Instruments().tally("rows_total", [("a",)])
    tally.values[("a",)] += 5
    tally.expect([("a",), ("b",)])
    assert tally.values == {("a",): 5, ("b",): 0}


def test_a_reading_is_taken_when_somebody_asks():
    now, made = {(): 1.0}, Instruments()
    made.reading("queue_items", lambda: now)
    now[()] = 7.0
    assert made.registry.get_sample_value("khot_queue_items") == 7
    now.clear()
    assert made.registry.get_sample_value("khot_queue_items") is None


def test_series_that_come_and_go_do_not_disturb_a_scrape():
    """The page is written by another thread: here, between two lines of it."""
    tally, histogram = Instruments().tally("job_loss", ()), Histogram(RESIDUAL, [PAIR])
    tally.values[("1", "vae")] = 0.5
    for collector, change in (
        (tally, tally.values.clear),
        (histogram, lambda: histogram.of("new", "serving")),
    ):
        families = iter(collector.collect())
        change()
        assert next(families).samples


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_names_follow_the_rules_of_prometheus(definition):
    name = definition.name
    assert name.startswith("khot_") and name == name.lower()
    assert name.endswith("_total") == (definition.kind == "counter")
    assert not name.endswith(("_ms", "_us", "_percent", "_mb", "_count", "_sum", "_bucket"))
    assert bool(definition.bounds) == (definition.kind == "histogram")
    assert list(definition.bounds) == sorted(set(definition.bounds))
    assert definition.text.endswith(".")


def test_each_name_is_defined_once():
    assert len(BY_NAME) == len(DEFINITIONS)
