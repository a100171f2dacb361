"""Feature selection: `khot.training.train_feature_selector` on a table."""

import warnings
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from khot import models
from khot.training import (
    Callbacks,
    Checkpoint,
    Examples,
    FeatureSelectionConfig,
    FeatureSelectionResult,
    Split,
    train_feature_selector,
)
from khot_server.jobs import results
from khot_server.jobs.artifacts import Data, History, Made, Reconstructed
from khot_server.jobs.messages import Order
from khot_server.jobs.spec import LEARNS_K, RECONSTRUCTION, FeatureSelectionSpec
from khot_server.jobs.tasks.data import Source, constant_columns
from khot_server.jobs.tasks.options import given
from khot_server.jobs.tasks.reporter import Course

SHOWN = 20  # test examples


class FeatureSelectionTask:
    """A feature selection that is prepared.

    Raises:
        ValueError: the specification does not fit the data.
    """

    def __init__(self, order: Order) -> None:
        assert isinstance(order.spec, FeatureSelectionSpec)
        self._order, self._source = order, Source(order)
        self._config = _config(order.spec, self._source)
        x = self._source.x
        y = self._source.y or x  # without a target the features themselves
        self._split = Split(*(Examples(*part) for part in zip(x, y, strict=True)))
        self._learned: FeatureSelectionResult | None = None

    @property
    def course(self) -> Course:
        """What it goes through."""
        config = self._config
        return Course(config.used_estimator, len(self._split.train.x), config.batch_size)

    def train(self, resume: Checkpoint | None, callbacks: Callbacks) -> bool:
        """Train, from a checkpoint if there is one; False: stopped, after writing one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of constant columns: the result has them
            self._learned = train_feature_selector(
                self._config, self._split, resume=resume, callbacks=callbacks
            )
        return self._learned is not None

    def made(self, history: History) -> Made:
        """What came of it."""
        assert self._learned is not None
        learned, prepared, model = self._learned, self._source.prepared, self._learned.model
        standardized = self._config.standardize
        return Made(
            job_id=self._order.job_id,
            spec=self._order.spec,
            config=asdict(self._config),
            result=results.FeatureSelectionResult(
                features=learned.features,
                names=tuple(prepared.names[index] for index in learned.features),
                scores=learned.scores,
                inclusion_probabilities=learned.inclusion_probabilities,
                feature_shape=prepared.feature_shape,
                test=learned.test,
                validation=learned.validation,
                references=learned.references,
                stability=learned.stability,
                epochs_run=learned.epochs_run,
                classes=prepared.classes,
                warnings=constant_columns(prepared.names, learned.constant),
            ),
            history=history,
            marks={"best": learned.best_epoch},
            save_model=partial(models.save, model),
            data=Data(
                name=self._order.spec.dataset,
                names=prepared.names,
                feature_shape=prepared.feature_shape,
                mean=_array(model.mean) if standardized else None,
                scale=_array(model.scale) if standardized else None,
                fill=self._source.fill,
                class_means=self._class_means(),
            ),
            provenance=self._source.provenance(),
            reconstructed=self._reconstructed(model),
        )

    def _reconstructed(self, model: models.FeatureSelector) -> Reconstructed | None:
        """What some test rows become."""
        if self._config.objective != RECONSTRUCTION:
            return None
        shown = self._split.test.x[:SHOWN]
        seen = shown.masked_fill(model.mask() == 0, torch.nan)
        with torch.no_grad():
            again = model(shown).sigmoid()
        return Reconstructed(
            originals=_array(shown), seen=_array(seen), reconstructions=_array(again)
        )

    def _class_means(self) -> NDArray[Any] | None:
        """The mean training example of each class, if there are classes."""
        if self._config.objective != "classification":
            return None
        x, y = self._split.train.x, self._split.train.y
        sums = torch.zeros(len(self._source.prepared.classes), x.shape[1], device=x.device)
        counts = torch.bincount(y, minlength=len(sums)).clamp(min=1)
        return _array(sums.index_add(0, y, x) / counts[:, None])


def _config(spec: FeatureSelectionSpec, source: Source) -> FeatureSelectionConfig:
    prepared = source.prepared
    chosen = given(spec, FeatureSelectionConfig) | {"k": spec.k, "objective": prepared.objective}
    # pixels are alike already, and their blank ones would be blown up
    chosen.setdefault("standardize", not prepared.feature_shape)
    if spec.k is None:
        chosen["estimator"] = LEARNS_K
    return FeatureSelectionConfig(**chosen)


def _array(values: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.detach().cpu().numpy()
    return array
