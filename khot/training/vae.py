"""Learn to describe examples by L k-hot vectors.

All that is random comes from four seeds made of the config's one: initial weights, order (by
epoch), the draws of the training (by the index of the example in all of it), and those of
evaluations (by the index of the example): so an evaluation is a function of the model, the
examples and the seed. It is a Monte-Carlo estimate, of one draw for each example: without bias,
and with a standard error of that of a draw over the root of their number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from khot import _random
from khot._checks import check_choice, refuse, work_dtype
from khot._solve import Diagnostics
from khot.estimators._perturb import NOISES
from khot.models.vae import KHotVAE, check_latents
from khot.training._adam import Adam
from khot.training._batches import Batches
from khot.training.data import Split
from khot.training.loop import PROGRESS_STEPS, Callbacks, Checkpoint, Diverged, Stage, Task, run
from khot.training.task import defaults

_WHO = "train_vae"

# Examples that are evaluated together.
_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class VAEConfig:
    """How to train; with the data, it decides every bit of the result.

    Attributes:
        latents: k-hot vectors of a code.
        n: units of each.
        k: ones of each, from 1 to n; it is not learned.
        encoder: widths of the encoder's hidden layers.
        decoder: widths of the decoder's.
        estimator: of the gradient through the draws, any of the registry.
        prior: "softmax", the papers' term; "softmax_mean", its mean over the vectors; or
            "exact", which only estimators that draw from the k-subset law have
            (`khot.models.KHotVAE`).
        hard: train an estimator that relaxes on hard draws; they are always hard in evaluations.
        strength: lambda of `imle`; other estimators have none.
        noise: of `imle`, "sum_of_gamma" or "gumbel"; other estimators have no choice.
        bound: tell in evaluations also the `subset_elbo` of estimators that have no `elbo`.
        tau: temperature of the draws.
        last_tau: the same at the end, reached by equal factors; None: it stays.
        epochs: passes over the training data, at most.
        batch_size: examples in a step.
        learning_rate: Adam's.
        patience: end after this many epochs without a lower loss on the validation examples;
            None: never.
        seed: of initialisation, order and draws.
    """

    latents: int = 10
    n: int = 10
    k: int = 5
    encoder: tuple[int, ...] = (512, 256)
    decoder: tuple[int, ...] = (256, 512)
    estimator: str = "gumbel_sigmoid"
    prior: str = "softmax"
    hard: bool = True
    strength: float = 1.0
    noise: str = "sum_of_gamma"
    bound: bool = False
    tau: float = 1.0
    last_tau: float | None = None
    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-3
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        who = "VAEConfig"
        for name in ("latents", "n", "k", "epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if not (_is_positive_integer(value) or (name == "patience" and value is None)):
                refuse(who, f"{name} must be an integer of at least 1", repr(value))
        for name in ("encoder", "decoder"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(map(_is_positive_integer, value)):
                refuse(who, f"{name} must be a tuple of integers of at least 1", repr(value))
        check_latents(who, self.n, self.k, self.estimator, self.prior)
        check_choice(who, "noise", self.noise, NOISES)
        for name in ("hard", "bound"):
            if not isinstance(value := getattr(self, name), bool):
                refuse(who, f"{name} must be True or False", repr(value))
        for name in ("learning_rate", "strength", "tau", "last_tau"):
            value = getattr(self, name)
            if name == "last_tau" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                refuse(who, f"{name} must be a number", repr(value))
            # beyond, Adam's step is no float32; where it merely diverges, training says so
            if not 0 < value <= 1e30:
                refuse(who, f"{name} must be in (0, 1e30]", repr(value))
        if not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**64:
            refuse(who, "seed must be an integer of 64 bits", repr(self.seed))

    def tau_at(self, share: float) -> float:
        """Return the temperature when this share of the training is done."""
        if self.last_tau is None:
            return self.tau
        return float(self.tau ** (1 - share) * self.last_tau**share)


@dataclass(frozen=True)
class UnlabelledSplit:
    """Examples x to learn from, to choose between models by, and to test the one chosen with.

    Each float32 of shape (m, d), with entries in [0, 1].
    """

    train: Tensor
    validation: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            _refuse_bad_examples("UnlabelledSplit", name, getattr(self, name))
        d = self.train.shape[1]
        for name in ("validation", "test"):
            if (got := getattr(self, name).shape[1]) != d:
                refuse("UnlabelledSplit", f"{name} must have the {d} features of train", str(got))

    @classmethod
    def of(cls, split: Split) -> "UnlabelledSplit":
        """Return the examples of the split without their labels."""
        return cls(split.train.x, split.validation.x, split.test.x)


@dataclass(frozen=True)
class VAEResult:
    """What was learned; all numbers are means over examples, in nats.

    Attributes:
        test: on the test examples: `reconstruction` and `prior`, the two terms; their sum, the
            `loss`, but with the exact prior; and where the codes are drawn from the k-subset law,
            whichever prior they are trained with, the `elbo`: minus the reconstruction and the
            exact divergence, at most the mean log p(x) of binary examples. Of other codes with
            `bound` the `subset_elbo`, the same if they were drawn so (`KHotVAE.subset_elbo`).
            `top_reconstruction` is that of the codes with the k largest logits, not of draws.
        validation: the same on the validation examples.
        usage: mean inclusion probability of each unit over the test examples, (L, n).
        epochs_run: how many epochs there were.
        best_epoch: after which of them the model was kept, from 1.
        model: that model, in evaluation mode.
    """

    test: dict[str, float]
    validation: dict[str, float]
    usage: Tensor
    epochs_run: int
    best_epoch: int
    model: KHotVAE

    @property
    def test_loss(self) -> float | None:
        """The loss on the test examples; None with the exact prior, where the ELBO is it."""
        return self.test.get("loss")

    @property
    def test_elbo(self) -> float | None:
        """The ELBO on the test examples; None where the law of the codes is not known."""
        return self.test.get("elbo")


def train_vae(
    config: VAEConfig,
    split: UnlabelledSplit,
    *,
    resume: Checkpoint | None = None,
    callbacks: Callbacks | None = None,
) -> VAEResult | None:
    """Train a `khot.models.KHotVAE`; return the best there was, or None if it was stopped.

    The best is the one of the least loss on the validation examples after an epoch.

    Args:
        config: how to train.
        split: the examples.
        resume: a checkpoint of a training with this config on data of these shapes:
            it goes on from there, bit for bit as if it had never stopped.
        callbacks: who is told of progress and checkpoints, and may stop it.

    Raises:
        ValueError: resume is not a checkpoint of this training.
        Diverged: a loss or a parameter is no longer finite.
    """
    task = _Vae(config, split)
    stages = [Stage("vae", task.steps, lambda _: task)]
    outcomes = run(stages, resume=resume, callbacks=callbacks or Callbacks())
    if outcomes is None:
        return None
    outcome, model = outcomes["vae"], task.vae.eval()
    test = evaluate_vae(model, split.test, seed=config.seed, bound=config.bound)
    return VAEResult(
        test=test,
        validation={name: outcome.metrics[f"validation_{name}"] for name in test},
        usage=model.usage(split.test),
        epochs_run=outcome.epochs,
        best_epoch=outcome.epoch,
        model=model,
    )


def evaluate_vae(
    model: KHotVAE, x: Tensor, *, seed: int = 0, bound: bool = False
) -> dict[str, float]:
    """Return the mean `loss`, `elbo`, `reconstruction` and others of the examples x.

    Which of the first two there are depends on the model, as in `VAEResult`.

    With the seed of a training's config these are the numbers of its `VAEResult`.

    Args:
        model: its codes are hard here, in whichever mode it is.
        x: float32 of shape (m, d), in [0, 1].
        seed: of the draws, one for each example.
        bound: also the `subset_elbo`, where there is no `elbo`.

    Raises:
        ValueError: x is of another dtype or shape, or leaves [0, 1].
    """
    _refuse_bad_examples("evaluate_vae", "x", x)
    return _measured(model, x, _seeds(seed)["evaluations"], bound=bound)


def _measured(model: KHotVAE, x: Tensor, seed: int, *, bound: bool) -> dict[str, float]:
    training = model.training
    model.eval()
    dtype = work_dtype(x)
    bound = bound and not model.is_exact
    totals = torch.zeros(5, dtype=dtype, device=x.device)
    with torch.no_grad():
        for index, part in enumerate(x.split(_AT_ONCE)):
            seeds = _random.row_seeds(seed, len(part), first=index * _AT_ONCE)
            reconstruction, prior, _ = model(part, seeds=seeds)
            exact = prior
            if model.is_exact and model.prior != "exact":
                exact = model.divergence(model.encode(part))
            other = model.subset_elbo(part, seeds=seeds) if bound else prior
            terms = (reconstruction, prior, exact, other, model.top_cost(part))
            totals += torch.stack(terms).sum(-1, dtype=dtype)
    model.train(training)
    reconstruction, prior, exact, other, top = (totals / len(x)).tolist()
    measured = {"reconstruction": reconstruction, "prior": prior, "top_reconstruction": top}
    if model.is_exact:
        measured = {"elbo": -(reconstruction + exact), **measured}
    if bound:
        measured = {"subset_elbo": other, **measured}
    if model.prior != "exact":
        measured = {"loss": reconstruction + prior, **measured}
    return measured


def _seeds(seed: int) -> dict[str, int]:
    """The seeds made of the config's one."""
    names = ("weights", "order", "draws", "evaluations")
    return dict(zip(names, _random.row_seeds(seed, len(names)).tolist(), strict=True))


class _Vae(Task):
    def __init__(self, config: VAEConfig, split: UnlabelledSplit) -> None:
        self.config, self.split, self.seeds = config, split, _seeds(config.seed)
        self.vae = self._vae()
        self._batches = Batches(self.seeds["order"], config.batch_size, split.train)
        shapes = [list(x.shape) for x in (split.train, split.validation, split.test)]
        super().__init__(
            who=_WHO,
            identity={"kind": "vae", "config": asdict(config), "shapes": shapes},
            model=self.vae,
            optimizer=Adam([{"params": self.vae.parameters(), "lr": config.learning_rate}]),
            epochs=config.epochs,
            steps_per_epoch=self._batches.per_epoch,
            patience=config.patience,
            defaults=defaults(config),
        )

    def _vae(self) -> KHotVAE:
        config, x = self.config, self.split.train
        # torch's layers take their first weights from the global generator only
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seeds["weights"])
            model = KHotVAE(
                x.shape[1],
                config.latents,
                config.n,
                config.k,
                encoder=config.encoder,
                decoder=config.decoder,
                estimator=config.estimator,
                prior=config.prior,
                hard=config.hard,
                strength=config.strength,
                noise=config.noise,
                tau=config.tau,
            )
        return model.to(x.device)

    def loss(self, step: int) -> tuple[Tensor, Diagnostics | None]:
        (x,), first = self._batches[step], step * self.config.batch_size
        seeds = _random.row_seeds(self.seeds["draws"], len(x), first=first)
        self.vae.tau = self.config.tau_at(step / self.steps)
        with _refusals_as_divergence(f"at step {step + 1}"):
            terms = self.vae(x, seeds=seeds)
        # a sample of them tells as much
        return terms.loss.mean(), terms.solved if (step + 1) % PROGRESS_STEPS == 0 else None

    def evaluate(self) -> dict[str, float]:
        with _refusals_as_divergence("in an evaluation"):
            seed, bound = self.seeds["evaluations"], self.config.bound
            measured = _measured(self.vae, self.split.validation, seed, bound=bound)
        loss = measured["reconstruction"] + measured["prior"]
        return {f"validation_{name}": value for name, value in {"loss": loss, **measured}.items()}


@contextmanager
def _refusals_as_divergence(when: str) -> Iterator[None]:
    """All arguments are good in a training: what an operator refuses is what diverged."""
    try:
        yield
    except ValueError as error:
        raise Diverged(f"{_WHO}: logits must stay finite; got others {when}") from error


def _refuse_bad_examples(who: str, name: str, x: Tensor) -> None:
    if x.dtype != torch.float32 or x.ndim != 2 or 0 in x.shape:
        got = f"{x.dtype} of shape {tuple(x.shape)}".removeprefix("torch.")
        refuse(who, f"{name} must be float32 of shape (m, d), neither of them 0", got)
    good = ((x >= 0) & (x <= 1)).all(-1)
    if not bool(good.all()):
        got = f"others in {int((~good).sum())} of {len(good)} rows"
        refuse(who, f"{name} must be in [0, 1], the range of a pixel", got)


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
