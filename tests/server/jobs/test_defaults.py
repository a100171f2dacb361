"""The page says what a job does unless it is told otherwise, and it does so."""

import re
from pathlib import Path

import pytest

from khot.training import FeatureSelectionConfig, SparseRegressionConfig, VAEConfig
from khot.training._selection_config import LEAST_EPOCHS, MOST_EPOCHS, STEPS
from khot_server.jobs.spec import FeatureSelectionSpec, SparseRegressionSpec, VaeSpec

PAGE = Path(__file__).parents[3] / "server/README.md"
SELECTION = FeatureSelectionConfig(k=10)
VAE = VAEConfig()
REGRESSION = SparseRegressionConfig(k=3)
SPEC = FeatureSelectionSpec(dataset="digits", k=10)
VAE_SPEC = VaeSpec(dataset="digits")
REGRESSION_SPEC = SparseRegressionSpec(dataset="kuramoto-sivashinsky", k=3)


@pytest.fixture(scope="module")
def table():
    text = PAGE.read_text().partition("### What a job does unless it is told otherwise")[2]
    lines = re.findall(r"^\| (`.*) ?\|$", text.partition("###")[0], re.MULTILINE)
    rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    return {name: cells for name, *cells in rows}


def numbers(text):
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_the_page_has_the_defaults_of_a_feature_selection(table):
    said = {name: cells[0] for name, cells in table.items()}
    learned = FeatureSelectionConfig(k=None)
    for used in (SELECTION.used_estimator, learned.used_estimator):
        assert f"`{used}`" in said["`estimator`"]
    assert tuple(numbers(said["`hidden`; `encoder`, `decoder`"])) == SELECTION.hidden
    assert said["`hard`"].startswith("no") and not SELECTION.hard
    assert numbers(said["`batch_size`"]) == [SELECTION.batch_size]
    assert SELECTION.epochs is None
    assert numbers(said["`epochs`"]) == [STEPS, LEAST_EPOCHS, MOST_EPOCHS]
    assert numbers(said["`learning_rate`"])[0] == SELECTION.learning_rate
    assert numbers(said["`mask_learning_rate`"])[0] == SELECTION.mask_learning_rate
    assert numbers(said["`weight_decay`"]) == [SELECTION.weight_decay]
    assert numbers(said["`tau`, `last_tau`"]) == [SELECTION.tau, SELECTION.last_tau]
    assert numbers(said["`tuning`"]) == [SELECTION.tuning]
    assert SELECTION.patience is None and SELECTION.references and SPEC.references
    shares = [SPEC.validation_share, SPEC.test_share]
    assert numbers(said["`validation_share`, `test_share`"]) == shares
    assert numbers(said["`seed`, `split_seed`"]) == [SPEC.seed, SPEC.split_seed] == [0, 0]


def test_the_page_has_the_defaults_of_a_vae(table):
    said = {name: cells[1] for name, cells in table.items()}
    assert said["`estimator`"] == f"`{VAE.estimator}`" and said["`prior`"] == f"`{VAE_SPEC.prior}`"
    widths = [*VAE.encoder, *VAE.decoder]
    assert said["`hard`"].startswith("yes") and VAE.hard
    assert numbers(said["`hidden`; `encoder`, `decoder`"]) == widths
    assert numbers(said["`batch_size`"]) == [VAE.batch_size]
    assert numbers(said["`epochs`"]) == [VAE.epochs]
    assert numbers(said["`learning_rate`"]) == [VAE.learning_rate]
    assert numbers(said["`tau`, `last_tau`"]) == [VAE.tau] and VAE.last_tau is None
    sizes = [VAE_SPEC.latents, VAE_SPEC.n, VAE_SPEC.k]
    assert numbers(said["`latents`, `n`, `k`"]) == sizes == [VAE.latents, VAE.n, VAE.k]
    assert VAE.patience is None
    shares = (VAE_SPEC.validation_share, VAE_SPEC.test_share)
    assert shares == (SPEC.validation_share, SPEC.test_share)


def test_the_page_has_the_defaults_of_a_sparse_regression(table):
    said = {name: cells[2] for name, cells in table.items()}
    assert said["`estimator`"] == f"`{REGRESSION.estimator}`"
    for name in ("steps", "num_samples", "ridge"):
        assert numbers(said[f"`{name}`"]) == [getattr(REGRESSION, name)]
    assert numbers(said["`learning_rate`"])[0] == REGRESSION.learning_rate
    assert numbers(said["`tau`, `last_tau`"]) == [REGRESSION.tau] and REGRESSION.last_tau is None
    assert said["`intercept`"] == said["`references`"] == "yes"
    assert REGRESSION.intercept and REGRESSION.references
    assert REGRESSION_SPEC.intercept and REGRESSION_SPEC.references
    shares = (REGRESSION_SPEC.validation_share, REGRESSION_SPEC.test_share)
    assert shares == (SPEC.validation_share, SPEC.test_share)
