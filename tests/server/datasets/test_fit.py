"""Whether a job fits its data is told from the summary, with the field and how to mend it."""

from dataclasses import replace

import pytest

from khot_server.datasets import builtin, fit
from khot_server.datasets.records import Column, ColumnType, Pixels, Summary
from khot_server.jobs.spec import FeatureSelectionSpec, SparseRegressionSpec, SpecError, VaeSpec

F, INTEGER, B, T = ColumnType.FLOAT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.TEXT


def column(name: str, kind: ColumnType = F, **values) -> Column:
    numbers = {} if kind is T else {"min": 0.0, "max": 1.0, "mean": 0.5}
    return Column(
        **{"name": name, "type": kind, "distinct": 50, "rarest": ("r", 9)} | numbers | values
    )


LABEL = column("label", INTEGER, distinct=3, classes=("0", "1", "2"), rarest=("2", 12))


def table(*columns: Column, target: str | None = "label", rows: int = 100) -> Summary:
    columns = columns or (column("height"), column("weight"), column("age", INTEGER))
    listed = (*columns, LABEL)
    return Summary(rows=rows, column_count=len(listed), target=target, columns=listed)


def select(**fields) -> FeatureSelectionSpec:
    return FeatureSelectionSpec(**{"dataset": "d", "k": 1} | fields)


def pictures(**pixels) -> Summary:
    told = Pixels(**{"min": 0.0, "max": 1.0, "constant": 0} | pixels)
    return Summary(
        rows=100,
        column_count=13,
        target="label",
        columns=(LABEL,),
        example_shape=(3, 4),
        pixels=told,
    )


def test_the_features_are_all_other_columns_in_order():
    assert fit.check(select(), table()) == fit.Plan(
        ("height", "weight", "age"), "label", "classification"
    )
    plan = fit.check(select(ignore=("weight",)), table())
    assert plan.features == ("height", "age")
    plan = fit.check(select(target="height"), table())
    assert plan == fit.Plan(("weight", "age", "label"), "height", "regression")


def test_pictures_keep_their_shape_while_no_pixel_is_ignored():
    plan = fit.check(select(), pictures())
    assert plan.feature_shape == (3, 4) and len(plan.features) == 12
    plan = fit.check(select(ignore=("pixel_0_0", "pixel_2_3")), pictures())
    assert plan.feature_shape == () and len(plan.features) == 10
    assert fit.check(VaeSpec(dataset="d"), pictures()).feature_shape == (3, 4)


@pytest.mark.parametrize(
    ("kind", "asked", "objective"),
    [
        (F, None, "regression"),
        (INTEGER, None, "classification"),
        (B, None, "classification"),
        (T, None, "classification"),
        (F, "classification", "classification"),
        (INTEGER, "regression", "regression"),
    ],
)
def test_the_objective_is_that_of_the_values_unless_it_is_given(kind, asked, objective):
    summary = table(column("a"), column("b"), column("c", kind, distinct=4))
    assert (
        fit.check(select(target="c", objective=asked, ignore=("a",)), summary).objective
        == objective
    )


def test_a_reconstruction_needs_no_target_and_takes_no_label_for_a_feature():
    again = select(objective="reconstruction")
    names = ("height", "weight", "age")
    assert fit.check(again, table()) == fit.Plan(names, None, "reconstruction")
    assert fit.check(again, table(target=None)).features == (*names, "label")
    plan = fit.check(again, pictures())
    assert plan.feature_shape == (3, 4) and len(plan.features) == 12
    plan = fit.check(select(objective="reconstruction", ignore=("pixel_0_0",)), pictures())
    assert plan.feature_shape == () and len(plan.features) == 11


MANY = {"distinct": 1001, "rarest": None}
REFUSED = {
    "k as the features": (select(k=3), table(), "k", "less than 3, the number of features; got 3"),
    "k beyond those that are left": (
        select(k=2, ignore=("age",)),
        table(),
        "k",
        "less than 2, the number of features; got 2",
    ),
    "k beyond those that vary": (
        select(k=2),
        table(column("a"), column("b", distinct=1), column("c", distinct=1)),
        "k",
        "at most 1, the number of features that are not constant; got 2",
    ),
    "a column that cannot be reconstructed": (
        select(objective="reconstruction"),
        table(column("a"), column("b", min=-1.0), column("c")),
        "dataset",
        "columns must lie in [0, 1]; got values from -1 to 1 in 'b'",
    ),
    "a value to reconstruct that is missing": (
        select(objective="reconstruction", missing="impute"),
        table(column("a"), column("b", missing=2), column("c")),
        "dataset",
        "must have a value in every cell; got 2 in 'b'",
    ),
    "text that cannot be reconstructed": (
        select(objective="reconstruction"),
        table(column("a"), column("b", T), column("c")),
        "ignore",
        "must name all columns of text; got not 'b'",
    ),
    "all of them, to reconstruct": (
        select(objective="reconstruction", k=3),
        table(),
        "k",
        "less than 3, the number of features; got 3",
    ),
    "an unknown target": (
        select(target="hieght"),
        table(),
        "target",
        "must be a column, such as 'height', 'weight'; got 'hieght'",
    ),
    "a target unlike any": (
        select(target="zzz"),
        table(),
        "target",
        "such as 'height', 'weight', 'age', 'label'; got 'zzz'",
    ),
    "a pixel as the target": (select(target="pixel_0_0"), pictures(), "target", "must be a column"),
    "an unknown column to ignore": (
        select(ignore=("wieght",)),
        table(),
        "ignore",
        "must name columns, such as 'weight'",
    ),
    "the target to ignore": (
        select(ignore=("label",)),
        table(),
        "ignore",
        "must not name the target; got 'label'",
    ),
    "no target": (
        select(),
        table(target=None),
        "target",
        "must name a column, for the data set has",
    ),
    "text": (
        select(),
        table(*(column(f"t{i}", T) for i in range(7)), column("a")),
        "ignore",
        "must name all columns of text; got not 't0', 't1', 't2', 't3', 't4' and 2 more",
    ),
    "missing values": (
        select(),
        table(column("a", missing=3), column("b"), column("c", missing=1)),
        "missing",
        "must be impute where values are missing; got 3 in 'a', 1 in 'c'",
    ),
    "missing pixels": (select(), pictures(missing=9), "missing", "got 9 pixels without one"),
    "missing values of the target": (
        select(missing="impute", target="a"),
        table(column("a", missing=3), column("b"), column("c")),
        "target",
        "must have a value in every row; got 3 rows without one in 'a'",
    ),
    "a column without a value": (
        select(missing="impute"),
        table(column("a", missing=100, distinct=0), column("b"), column("c")),
        "ignore",
        "must name all columns without a value; got not 'a'",
    ),
    "one class": (
        select(target="a"),
        table(column("a", T, distinct=1, rarest=("x", 100)), column("b"), column("c")),
        "target",
        "must have at least 2 classes; got 'x' alone",
    ),
    "one number": (
        select(target="a", objective="regression"),
        table(column("a", distinct=1), column("b"), column("c")),
        "target",
        "must have different values; got one in 'a'",
    ),
    "very many classes": (
        select(target="a"),
        table(column("a", INTEGER, **MANY), column("b"), column("c")),
        "target",
        "at most 1000 classes, or the objective must be regression; got more in 'a'",
    ),
    "very many texts": (
        select(target="a"),
        table(column("a", T, **MANY), column("b"), column("c")),
        "target",
        "must have at most 1000 classes; got more",
    ),
    "text to regress on": (
        select(target="a", objective="regression"),
        table(column("a", T), column("b"), column("c")),
        "objective",
        "must be classification, for the target 'a' is text; got regression",
    ),
    "a rare class": (
        select(target="a"),
        table(column("a", T, rarest=("lynx", 2)), column("b"), column("c")),
        "target",
        "at least 3 rows of every class; got 2 of 'lynx' in 'a'",
    ),
    "few rows": (select(), table(rows=9), "dataset", "must have at least 10 rows; got 9"),
    "a small share to choose by": (
        select(validation_share=0.001),
        table(),
        "validation_share",
        "must be a row or more of 100; got 0.001",
    ),
    "a small share to test with": (
        select(test_share=0.004),
        table(),
        "test_share",
        "must be a row or more of 100; got 0.004",
    ),
    "constant features": (
        select(),
        table(*(column(name, distinct=1) for name in "abc")),
        "dataset",
        "must have a feature that is not constant; got 3 constant ones",
    ),
    "constant pixels": (select(), pictures(constant=12), "dataset", "that is not constant"),
    "one feature": (
        select(),
        table(column("a")),
        "dataset",
        "must have at least 2 features; got 1",
    ),
}


@pytest.mark.parametrize(("spec", "summary", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_a_selection_that_cannot_be_made_is_refused(spec, summary, field, message):
    with pytest.raises(SpecError) as caught:
        fit.check(spec, summary)
    assert caught.value.field == f"feature_selection.{field}"
    assert message in str(caught.value)


VAE = VaeSpec(dataset="d")
REFUSED_VAE = {
    "text": (table(column("a"), column("t", T)), "columns must be numbers; got text in 't'"),
    "missing values": (table(column("a", missing=2)), "in every cell; got 2 in 'a'"),
    "missing pixels": (pictures(missing=2), "in every cell; got 2 pixels without one"),
    "negative values": (
        table(column("a"), column("b", min=-1.5, max=1.0)),
        "must lie in [0, 1]; got values from -1.5 to 1 in 'b'",
    ),
    "bytes as pixels": (pictures(max=255.0), "must lie in [0, 1]; got values from 0 to 255"),
    "few rows": (table(rows=5), "must have at least 10 rows; got 5"),
    "the target alone": (
        Summary(rows=100, column_count=1, target="label", columns=(LABEL,)),
        "must have columns beside its target; got none",
    ),
}


@pytest.mark.parametrize(("summary", "message"), REFUSED_VAE.values(), ids=REFUSED_VAE)
def test_a_vae_that_cannot_learn_is_refused(summary, message):
    with pytest.raises(SpecError) as caught:
        fit.check(VAE, summary)
    assert caught.value.field == "vae.dataset"
    assert message in str(caught.value)


def test_a_vae_takes_all_but_the_target():
    summary = table(column("a"), column("b", B))
    assert fit.check(VAE, summary) == fit.Plan(("a", "b"))
    assert fit.check(VAE, replace(summary, target=None, columns=summary.columns[:2])).target is None


def test_its_own_test_rows_are_not_for_learning():
    mnist = builtin.dataset("mnist").summary
    few = replace(mnist, test_rows=mnist.rows - 9)
    with pytest.raises(SpecError, match="must have at least 10 rows; got 9"):
        fit.check(select(), few)
    assert fit.check(select(test_share=0.000001), mnist), "its share is not used"


@pytest.mark.parametrize("name", builtin.NAMES)
def test_what_is_built_in_fits(name):
    summary = builtin.dataset(name).summary
    assert len(fit.check(select(k=10), summary).features) == summary.features
    if summary.pixels is not None:
        assert fit.check(VAE, summary).target is None


def regress(**fields) -> SparseRegressionSpec:
    return SparseRegressionSpec(**{"dataset": "d", "k": 1} | fields)


def test_a_sparse_regression_takes_any_target_of_numbers_as_one():
    plan = fit.check(regress(), table())
    assert plan == fit.Plan(("height", "weight", "age"), "label", "regression")
    plan = fit.check(regress(target="height", ignore=("age",)), table())
    assert plan == fit.Plan(("weight", "label"), "height", "regression")


REGRESSIONS = {
    "too many": ({"k": 3}, table(), "k: must be less than 3, the number of features; got 3"),
    "constant": (
        {"k": 2},
        table(column("a"), column("b", distinct=1), column("c", distinct=1)),
        "k: must be at most 1, the number of features that are not constant; got 2",
    ),
    "text": (
        {"target": "a"},
        table(column("a", T), column("b"), column("c")),
        "target: must be numbers; got text in 'a'",
    ),
    "one value": (
        {"target": "a"},
        table(column("a", distinct=1), column("b"), column("c")),
        "target: must have different values; got one in 'a'",
    ),
    "missing": (
        {},
        table(column("a", missing=3), column("b")),
        "missing: must be impute where values are missing; got 3 in 'a'",
    ),
    "a wide table": (
        {},
        table(*(column(f"c{i}") for i in range(4097))),
        "dataset: must have at most 4096 features, .*; got 4097",
    ),
    "a column that is not there": (
        {"ignore": ("wieght",)},
        table(),
        "ignore: must name columns, such as 'weight', .*; got 'wieght'",
    ),
}


@pytest.mark.parametrize(("fields", "summary", "message"), REGRESSIONS.values(), ids=REGRESSIONS)
def test_a_sparse_regression_that_cannot_be_done_is_refused(fields, summary, message):
    with pytest.raises(SpecError, match=f"^sparse_regression.{message}"):
        fit.check(regress(**fields), summary)
