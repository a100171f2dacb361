"""The stages of a feature selection: the choice, and the same network on other features.

In the **choice**, a mask is drawn for each example in each step, and the mask logits learn with
the network, at a rate of their own. An estimator that learns from the values of losses gets that
of each example, less the mean of the others' in the batch, which does not depend on the example's
own mask. In the last epochs, the **tuning**, the choice stands still: the network learns on with
the mask that it is evaluated with. Only models of the tuning are compared by their validation
loss, for before it they were trained to see other masks.

Rates fall to 0 along half a cosine: the mask's until the tuning, the network's until the end. An
Adam step moves a logit by its rate whatever the size of its gradient, so at a constant rate the
noise of the last draws would decide between features that are nearly as good.

All that is random comes from four seeds made of the config's one: initial weights, order (by
epoch), masks (by the step; its examples have samples of one draw), and the random features.
"""

import math
from dataclasses import asdict

import torch
from torch import Tensor
from torch.nn import functional

from khot import _random
from khot._checks import refuse
from khot._solve import Diagnostics
from khot.estimators import with_losses
from khot.models.feature_selector import FeatureSelector
from khot.training._adam import Adam
from khot.training._batches import Batches, shuffled
from khot.training._selection_config import FeatureSelectionConfig
from khot.training.data import Examples, Split
from khot.training.loop import PROGRESS_STEPS, Stage, Task
from khot.training.task import defaults

WHO = "train_feature_selector"
SELECTION = "selection"
REFERENCES = {name: f"reference_{name}" for name in ("all", "random")}  # their stages

# Examples that are evaluated together.
_AT_ONCE = 5000


def stages_of(choice: "Selection") -> list[Stage]:
    """Return the stages of a training: the choice, then what it is compared with."""

    def reference(name: str) -> Stage:
        return Stage(REFERENCES[name], choice.steps, lambda _: Reference(choice, name))

    references = map(reference, REFERENCES) if choice.config.references else ()
    return [Stage(SELECTION, choice.steps, lambda _: choice), *references]


class Fit(Task):
    """A `FeatureSelector` in training: what the choice and its references have in common."""

    def __init__(
        self,
        config: FeatureSelectionConfig,
        split: Split,
        selector: FeatureSelector,
        x: Tensor,
        y: Tensor,
    ) -> None:
        self.config, self.split, self.selector, self.x, self.y = config, split, selector, x, y
        self.seeds = _seeds(config.seed)
        self.batches = Batches(self.seeds["order"], config.batch_size, x, y)
        self._mask: Tensor | None = None
        parts = (split.train, split.validation, split.test)
        super().__init__(
            who=WHO,
            identity={
                "kind": "feature_selection",
                "config": asdict(config),
                "shapes": [list(part.x.shape) for part in parts],
            },
            model=selector,
            optimizer=Adam(
                [
                    {"params": selector.network.parameters(), "weight_decay": config.weight_decay},
                    {"params": [selector.logits], "weight_decay": 0.0},
                ]
            ),
            epochs=config.epochs_of(len(x)),
            steps_per_epoch=self.batches.per_epoch,
            patience=config.patience,
            unit=float(selector.target_scale) ** 2,
            defaults=defaults(config),
        )

    def loss(self, step: int) -> tuple[Tensor, Diagnostics | None]:
        """With the mask that stands still."""
        if self._mask is None:
            self._mask = self.selector.mask()
        return self.losses(step, self._mask), None

    def losses(self, step: int, mask: Tensor, reduction: str = "mean") -> Tensor:
        """Return the loss of the examples of the step, seen through the mask, and set the rate."""
        rate = self.config.learning_rate * _falling(step / self.steps)
        self.optimizer.param_groups[0]["lr"] = rate
        x, y = self.batches[step]
        out = self.selector.network(x * mask)
        if self.config.objective == "regression":
            return functional.mse_loss(out.squeeze(-1), y, reduction=reduction)
        if self.config.objective == "reconstruction":
            costs = functional.binary_cross_entropy_with_logits(out, y, reduction=reduction)
            return costs if reduction == "mean" else costs.mean(-1)
        return functional.cross_entropy(out, y, reduction=reduction)

    def evaluate(self) -> dict[str, float]:
        """As `measure` does."""
        measured = measure(self.selector, self.split.validation)
        return {f"validation_{name}": value for name, value in measured.items()}


class Selection(Fit):
    """The choice of features, and its tuning."""

    def __init__(self, config: FeatureSelectionConfig, split: Split) -> None:
        x, y = split.train.x, split.train.y
        selector = _selector(config, split, config.k)
        targets = y if config.objective == "regression" else None
        selector.fit(x, targets, standardize=config.standardize)
        if targets is not None:
            y = (targets - selector.target_mean) / selector.target_scale
        if config.standardize:
            x = selector.standardized(x)
        if config.initial_k is not None:
            _begin_at(selector, config.initial_k)
        super().__init__(config, split, selector, x, y)
        self.choosing_epochs = config.choosing_epochs_of(len(x))
        self._choosing = True
        self._mask_seeds: tuple[int, tuple[Tensor, ...]] | None = None

    def eligible(self, epoch: int) -> bool:
        """In the tuning; if there is none, always."""
        return epoch > self.choosing_epochs or self.choosing_epochs == self.epochs

    def loss(self, step: int) -> tuple[Tensor, Diagnostics | None]:
        """With a mask of its own for each example, until the tuning."""
        steps = self.choosing_epochs * self.steps_per_epoch
        self._choosing = step < steps
        if not self._choosing:
            return super().loss(step)
        config, selector = self.config, self.selector
        rate = config.mask_learning_rate * _falling(step / steps)
        self.optimizer.param_groups[1]["lr"] = rate
        # past nn.Module, which looks for parameters and modules first, for 1 % of a small step
        selector.__dict__["tau"] = config.tau_at(step / max(steps - 1, 1))
        masks, solved = selector.draw(
            len(self.batches[step][0]),
            seeds=self._mask_seed(step),
            diagnostics=(step + 1) % PROGRESS_STEPS == 0,  # a sample of them tells as much
        )
        if selector.needs_loss:
            losses = self.losses(step, masks.detach(), "none")
            loss = with_losses(masks, losses, baseline=means_of_others(losses.detach())).mean()
        else:
            loss = self.losses(step, masks)
        if config.k is None:
            loss = loss + config.used_penalty * selector.inclusion_probabilities().sum()
        return loss, solved

    def _mask_seed(self, step: int) -> Tensor:
        """The seed of the masks of the step, of shape (); an epoch has them made at once."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if self._mask_seeds is None or self._mask_seeds[0] != epoch:
            first, count = epoch * self.steps_per_epoch, self.steps_per_epoch
            seeds = _random.row_seeds(self.seeds["masks"], count, first=first)
            self._mask_seeds = epoch, seeds.to(self.x.device).unbind()
        return self._mask_seeds[1][batch]

    def evaluate(self) -> dict[str, float]:
        """Remember which features are chosen, in the last quarter of the epochs there may be."""
        if self._choosing:
            self.memory.append(self.selector.chosen().tolist())
            del self.memory[: -_quarter(self.choosing_epochs)]
        return super().evaluate()

    def stability(self, epochs: int) -> float:
        """Return how like the kept choice those of the last quarter of these epochs were.

        The mean of |a and b| / |a or b|.
        """
        kept = set(self.selector.chosen().tolist())
        last = self.memory[-_quarter(min(epochs, self.choosing_epochs)) :]
        return math.fsum(len(kept & set(a)) / len(kept | set(a)) for a in last) / len(last)


class Reference(Fit):
    """The same network, from the same first weights, on all features or on k random ones."""

    def __init__(self, choice: Selection, name: str) -> None:
        config, chosen = choice.config, choice.selector
        features = (~chosen.constant).nonzero().squeeze(-1)
        if name == "random":
            order = shuffled(_seeds(config.seed)["features"], len(features))
            features = features[order[: len(chosen.chosen())].to(features.device)]
        # its mask stands still: of its estimator nothing is asked, but that it takes any k
        selector = _selector(config, choice.split, len(features), estimator="pi_st")
        for buffer, value in chosen.named_buffers():
            selector.get_buffer(buffer).copy_(value)
        with torch.no_grad():
            selector.logits[features] = 1.0
        super().__init__(config, choice.split, selector, choice.x, choice.y)
        # the best of its models is kept, and seldom is one of the last
        self.patience = config.patience or _quarter(self.epochs)


def measure(selector: FeatureSelector, examples: Examples) -> dict[str, float]:
    """Return `loss` and `accuracy`, or `loss`, `rmse` and `r2` in the units of y.

    Of a reconstruction, `rmse` and `r2` are those of all features together: r2 is the share of
    the sum of their variances.
    """
    if selector.training:
        selector.eval()
    y, total, right, squares = examples.y, 0.0, 0, 0.0
    whole = y.ndim == 2
    with torch.no_grad():
        mask = selector.mask()
        for x, part in zip(examples.x.split(_AT_ONCE), y.split(_AT_ONCE), strict=True):
            out = selector.predict(x, mask)
            if whole:
                cost = functional.binary_cross_entropy_with_logits(out, part, reduction="none")
                total += float(cost.sum(dtype=torch.float64))
                out = out.sigmoid()
            if y.is_floating_point():
                squares += float((out - part).double().square().sum())
            else:
                total += float(functional.cross_entropy(out, part, reduction="sum"))
                right += int((out.argmax(-1) == part).sum())
    if not y.is_floating_point():
        return {"loss": total / len(y), "accuracy": right / len(y)}
    error = squares / y.numel()
    variance = float(y.var(0, correction=0).double().mean())
    r2 = 1 - error / variance if variance > 0 else 0.0
    return {"loss": total / y.numel() if whole else error, "rmse": math.sqrt(error), "r2": r2}


def means_of_others(losses: Tensor) -> Tensor:
    """For each loss the mean of all others; 0 for one alone."""
    return (losses.sum() - losses) / max(len(losses) - 1, 1)


def _selector(
    config: FeatureSelectionConfig, split: Split, k: int | None, estimator: str | None = None
) -> FeatureSelector:
    """A selector of k features of this data with its first weights, in which k has no say."""
    classes = None
    if config.objective == "classification":
        parts = (split.train, split.validation, split.test)
        classes = 1 + max(int(part.y.max()) for part in parts)
    # torch's layers take their first weights from the global generator only
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_seeds(config.seed)["weights"])
        selector = FeatureSelector(
            split.train.x.shape[1],
            classes,
            k,
            hidden=config.hidden,
            tau=config.tau,
            estimator=estimator or config.used_estimator,
            hard=config.hard,
            reconstructs=config.objective == "reconstruction",
        )
    return selector.to(split.train.x.device)


def _begin_at(selector: FeatureSelector, k: float) -> None:
    """Make the inclusion probabilities equal, with the sum k."""
    n = int((~selector.constant).sum())
    if not k < n:
        must = f"initial_k must be less than {n}, the number of features that are not constant"
        refuse(WHO, must, f"{k:g}")
    with torch.no_grad():
        selector.logits.fill_(selector.tau * math.log(k / (n - k)))


def _seeds(seed: int) -> dict[str, int]:
    """The seeds made of the config's one."""
    names = ("weights", "order", "masks", "features")
    return dict(zip(names, _random.row_seeds(seed, len(names)).tolist(), strict=True))


def _falling(share: float) -> float:
    return (1 + math.cos(math.pi * share)) / 2


def _quarter(epochs: int) -> int:
    return -(-epochs // 4)
