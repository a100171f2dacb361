"""Sparse regression: `khot.training.train_sparse_regression` on a table."""

import warnings
from dataclasses import asdict
from functools import partial

import torch

from khot import models
from khot.training import (
    Callbacks,
    Checkpoint,
    Examples,
    SparseRegressionConfig,
    SparseRegressionResult,
    Split,
    train_sparse_regression,
)
from khot_server.jobs import results
from khot_server.jobs.artifacts import Data, History, Made, Predicted
from khot_server.jobs.messages import Order
from khot_server.jobs.spec import SparseRegressionSpec
from khot_server.jobs.tasks.data import Source, constant_columns
from khot_server.jobs.tasks.options import given
from khot_server.jobs.tasks.reporter import Course

SHOWN = 2000  # test rows in a picture


class SparseRegressionTask:
    """A sparse regression that is prepared.

    Raises:
        ValueError: the specification does not fit the data.
    """

    def __init__(self, order: Order) -> None:
        assert isinstance(order.spec, SparseRegressionSpec)
        self._order, self._source = order, Source(order)
        self._config = SparseRegressionConfig(**given(order.spec, SparseRegressionConfig))
        x, y = self._source.x, self._source.y
        assert y is not None
        self._split = Split(*(Examples(*part) for part in zip(x, y, strict=True)))
        self._learned: SparseRegressionResult | None = None

    @property
    def course(self) -> Course:
        """What it goes through: every step has all rows, so an epoch has them so many times."""
        m = len(self._split.train.x)
        return Course(self._config.estimator, m * self._config.steps_per_epoch, m)

    def train(self, resume: Checkpoint | None, callbacks: Callbacks) -> bool:
        """Train, from a checkpoint if there is one; False: stopped, after writing one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of constant columns: the result has them
            self._learned = train_sparse_regression(
                self._config, self._split, resume=resume, callbacks=callbacks
            )
        return self._learned is not None

    def made(self, history: History) -> Made:
        """What came of it."""
        assert self._learned is not None
        learned, prepared = self._learned, self._source.prepared
        assert prepared.target is not None
        return Made(
            job_id=self._order.job_id,
            spec=self._order.spec,
            config=asdict(self._config),
            result=results.SparseRegressionResult(
                features=learned.features,
                names=tuple(prepared.names[index] for index in learned.features),
                coefficients=learned.coefficients,
                intercept=learned.intercept,
                target=prepared.target,
                scores=learned.scores,
                inclusion_probabilities=learned.inclusion_probabilities,
                test=learned.test,
                validation=learned.validation,
                references=learned.references,
                stability=learned.stability,
                epochs_run=learned.epochs_run,
                warnings=constant_columns(prepared.names, learned.constant),
            ),
            history=history,
            marks={"best": learned.best_epoch},
            save_model=partial(models.save, learned.model),
            data=Data(
                name=self._order.spec.dataset,
                names=prepared.names,
                fill=self._source.fill,
            ),
            provenance=self._source.provenance(),
            predicted=self._predicted(learned),
        )

    def _predicted(self, learned: SparseRegressionResult) -> Predicted:
        """Some test rows, evenly taken, and what the model makes of them."""
        test = self._split.test
        every = -(-len(test.x) // SHOWN)
        with torch.no_grad():
            predictions = learned.model(test.x[::every])
        return Predicted(
            true=test.y[::every].cpu().numpy(),
            predicted=predictions.cpu().numpy(),
        )
