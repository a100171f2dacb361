"""What the batcher tells, counted: by operator, by design, by row."""

from dataclasses import replace

import pytest
from room import OPERATOR, Room, run

from khot_server.messages import Hello
from khot_server.metrics import Metrics

ROOTS = replace(OPERATOR, roots=True)
DESIGN = replace(OPERATOR, name="pivotal", kind="design", roots=True, design="pivotal")
ESTIMATOR = replace(OPERATOR, name="pi_st", kind="estimator", roots=True, design="pivotal")
HELLO = Hello((ROOTS, DESIGN, ESTIMATOR), "cpu", 1)
SERVED = {"operator": "sigmoid_topk", "source": "serving"}


@pytest.fixture
def metrics():
    made = Metrics(())
    made.engine_connected(HELLO)
    return made


def values(metrics, name):
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    return {tuple(s.labels.values()): s.value for s in samples if s.name == name}


def test_the_operators_are_there_at_0_once_an_engine_has_named_them(metrics):
    assert values(Metrics(()), "khot_rows_total") == {}
    assert values(metrics, "khot_rows_total") == {
        ("sigmoid_topk",): 0,
        ("pivotal",): 0,
        ("pi_st",): 0,
    }
    assert values(metrics, "khot_draws_total") == {("pivotal",): 0}
    pairs = {("sigmoid_topk", "serving"): 0, ("pivotal", "serving"): 0}
    pairs |= {("pi_st", "serving"): 0, ("pi_st", "training"): 0}
    for name in ("fallback_rows_total", "nonconverged_rows_total", "iterations_count"):
        assert values(metrics, f"khot_root_{name}") == pairs
    metrics.engine_connected(HELLO)
    assert values(metrics, "khot_root_residual_count") == pairs


async def served(room, engine, **answer):
    """A batch of 1, 2 and 1 rows, of 4 units each, as it came back."""
    room.submit_together(1, 2, 1)
    request = await engine.batch()
    engine.array(request, "iterations", "int32")[:] = [4, 3, 3, 4]
    engine.array(request, "residual", "float64")[:] = [1e-8, 1e-3, 1e-3, 1e-7]
    engine.answer(request, **answer)
    return room.observer.batches[-1]


@run
async def test_a_batch_is_counted_by_rows_scores_and_roots():
    metrics, room = Metrics(()), Room()
    metrics.engine_connected(HELLO)
    value = metrics.registry.get_sample_value
    batch = await served(
        room, await room.connect(), roots=True, fallback_rows=3, nonconverged_rows=2
    )
    metrics.batch_done(batch)
    assert value("khot_batch_rows_sum") == 4 and value("khot_batch_scores_sum") == 16
    assert value("khot_batch_compute_seconds_sum") == pytest.approx(500e-9)
    assert value("khot_queue_wait_seconds_count") == 3
    assert value("khot_rows_total", {"operator": "sigmoid_topk"}) == 4
    assert value("khot_root_iterations_sum", SERVED) == 14
    assert value("khot_root_residual_bucket", {**SERVED, "le": "1e-06"}) == 2
    assert value("khot_root_fallback_rows_total", SERVED) == 3
    assert value("khot_root_nonconverged_rows_total", SERVED) == 2


@run
async def test_rows_that_were_refused_or_failed_were_not_served():
    metrics, room = Metrics(()), Room()
    metrics.engine_connected(HELLO)
    value, engine = metrics.registry.get_sample_value, await room.connect()
    metrics.batch_done(await served(room, engine, roots=True, refusals={1: "x must be finite"}))
    metrics.batch_done(await served(room, engine, failure="RuntimeError: out of memory"))
    assert value("khot_rows_total", {"operator": "sigmoid_topk"}) == 2
    assert value("khot_root_residual_count", SERVED) == 2
    assert value("khot_batch_rows_count") == 2


@pytest.mark.parametrize(("operator", "samples", "drawn"), [("pivotal", None, 4), ("pi_st", 5, 20)])
@run
async def test_draws_are_counted_by_the_design_that_made_them(operator, samples, drawn):
    metrics, room = Metrics(()), Room()
    metrics.engine_connected(HELLO)
    batch = await served(room, await room.connect())
    call = batch.request.call._replace(operator=operator, samples=samples)
    metrics.batch_done(replace(batch, request=batch.request._replace(call=call)))
    assert metrics.registry.get_sample_value("khot_draws_total", {"design": "pivotal"}) == drawn
    assert metrics.registry.get_sample_value("khot_rows_total", {"operator": operator}) == 4
