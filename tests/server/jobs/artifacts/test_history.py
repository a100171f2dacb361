"""What was measured: one value for each measurement and step, and its table."""

import csv
import io
from itertools import permutations

import numpy as np
import pytest

from khot_server.jobs.artifacts import History
from khot_server.jobs.records import Point


def test_a_step_told_of_twice_has_the_value_told_last():
    history = History([Point(10, 1, "selection", {"loss": 2.0})])
    history.add(Point(10, 1, "selection", {"loss": 1.0}))
    assert [tuple(measured) for measured in history] == [(10, 1, "selection", "loss", 1.0)]


def test_the_order_of_telling_changes_nothing():
    points = [
        Point(1, 1, "selection", {"loss": 3.0}),
        Point(2, 1, "selection", {"loss": 2.0, "validation_loss": 1.0}),
        Point(3, 1, "reference_all", {"reference_all.loss": 0.5}),
    ]
    told = {(History(order).to_csv(), History(order).stages) for order in permutations(points)}
    assert len(told) == 1


def test_names_are_without_the_stage():
    history = History([Point(9, 1, "reference_all", {"reference_all.loss": 0.5, "other": 1.0})])
    assert history.names("reference_all") == {"loss", "other"}
    assert history.names("selection") == frozenset()


def test_stages_come_in_the_order_of_the_training():
    history = History([Point(30, 1, "a", {"loss": 1.0}), Point(20, 1, "c", {"loss": 1.0})])
    history.add(Point(10, 1, "b", {"loss": 1.0}))
    assert history.stages == ("b", "c", "a")


def test_a_curve_has_the_mean_of_each_epoch_over_its_steps():
    """21 steps an epoch, told of every 10 and at the end; a stage ended early before it."""
    history = History([Point(7, 1, "before", {"loss": 99.0})])
    for epoch in (1, 2):
        for step in (10, 20, 21):
            at = 1000 + 21 * (epoch - 1) + step
            history.add(Point(at, epoch, "x", {"x.loss": float(step), "x.validation_loss": 5.0}))
    curve = history.curve("x", "loss")
    assert curve.epochs.tolist() == [1, 2]
    of_first = (10 * 10 + 10 * 20 + 1 * 21) / 21
    of_second = (10 * 10 + 10 * 20 + 1 * 21) / 21
    np.testing.assert_allclose(curve.values, [of_first, of_second], rtol=1e-12)


def test_a_curve_of_one_value_is_that_value():
    curve = History([Point(7, 1, "x", {"validation_loss": 5.0})]).curve("x", "validation_loss")
    assert (curve.epochs.tolist(), curve.values.tolist()) == ([1], [5.0])


def test_the_table_has_a_line_for_each_value():
    values = {"loss": 0.1 + 0.2, "validation_loss": 1e-300, "odd": float("nan")}
    history = History([Point(3, 1, "selection", values)])
    history.add(Point(4, 1, "ref", {"ref.loss": 1.0}))
    assert history.to_csv().decode() == (
        "step,epoch,stage,metric,value\n"
        "3,1,selection,loss,0.30000000000000004\n"
        "3,1,selection,odd,\n"
        "3,1,selection,validation_loss,1e-300\n"
        "4,1,ref,loss,1.0\n"
    )


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a\nb"])
def test_the_table_is_read_back_as_it_was(name):
    text = History([Point(3, 1, "x", {name: 0.5})]).to_csv().decode()
    assert list(csv.reader(io.StringIO(text)))[1] == ["3", "1", "x", name, "0.5"]
