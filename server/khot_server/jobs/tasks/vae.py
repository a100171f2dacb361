"""A VAE: `khot.training.train_vae` on the features of a data set."""

from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from khot import models
from khot.training import Callbacks, Checkpoint, UnlabelledSplit, VAEConfig, VAEResult, train_vae
from khot_server.jobs.artifacts import Data, Effects, Examples, History, Made
from khot_server.jobs.messages import Order
from khot_server.jobs.results import VaeResult
from khot_server.jobs.spec import VaeSpec
from khot_server.jobs.tasks.data import Source
from khot_server.jobs.tasks.options import given
from khot_server.jobs.tasks.reporter import Course

SHOWN = 20  # test examples
SAMPLES = 60
# What the effects of units are measured with: test rows, and units, if there are more.
ROWS, UNITS = 128, 1000


class VaeTask:
    """A VAE that is prepared.

    Raises:
        ValueError: the specification does not fit the data.
    """

    def __init__(self, order: Order) -> None:
        assert isinstance(order.spec, VaeSpec)
        self._order, self._source = order, Source(order)
        self._config = VAEConfig(**given(order.spec, VAEConfig))
        self._split = UnlabelledSplit(*self._source.x)
        self._learned: VAEResult | None = None

    @property
    def course(self) -> Course:
        """What it goes through."""
        config = self._config
        return Course(config.estimator, len(self._split.train), config.batch_size)

    def train(self, resume: Checkpoint | None, callbacks: Callbacks) -> bool:
        """Train, from a checkpoint if there is one; False: stopped, after writing one."""
        self._learned = train_vae(self._config, self._split, resume=resume, callbacks=callbacks)
        return self._learned is not None

    def made(self, history: History) -> Made:
        """What came of it."""
        assert self._learned is not None
        learned, prepared = self._learned, self._source.prepared
        latents, n = learned.usage.shape
        return Made(
            job_id=self._order.job_id,
            spec=self._order.spec,
            config=asdict(self._config),
            result=VaeResult(
                test=learned.test,
                validation=learned.validation,
                usage=tuple(learned.usage.flatten().tolist()),
                usage_shape=(latents, n),
                epochs_run=learned.epochs_run,
            ),
            history=history,
            marks={"best": learned.best_epoch},
            save_model=partial(models.save, learned.model),
            data=Data(
                name=self._order.spec.dataset,
                names=prepared.names,
                feature_shape=prepared.feature_shape,
            ),
            provenance=self._source.provenance(),
            examples=self._examples(learned),
        )

    def _examples(self, learned: VAEResult) -> Examples:
        """Some test rows, what becomes of them, and samples: the same for the same seed."""
        shown = self._split.test[:SHOWN]
        generator = torch.Generator(shown.device).manual_seed(self._config.seed)
        with torch.no_grad():
            return Examples(
                originals=_array(shown),
                reconstructions=_array(learned.model.reconstruct(shown, generator=generator)),
                samples=_array(learned.model.sample(SAMPLES, generator=generator)),
                effects=self._effects(learned, generator),
            )

    def _effects(self, learned: VAEResult, generator: torch.Generator) -> Effects:
        """Those of all units or, of very many, of those that differ most between test rows."""
        n, p = learned.model.n, learned.usage.flatten()
        units = (p * (1 - p)).argsort(descending=True, stable=True)[:UNITS].sort().values
        rows = self._split.test[:ROWS]
        changes = learned.model.unit_effects(rows, units=units, generator=generator)
        places = tuple((unit // n, unit % n) for unit in units.tolist())
        return Effects(units=places, changes=_array(changes))


def _array(values: torch.Tensor) -> NDArray[Any]:
    made: NDArray[Any] = values.detach().cpu().numpy()
    return made
