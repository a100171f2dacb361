r"""A variational autoencoder whose latent code is L k-hot vectors.

An example x in [0, 1]^d is encoded as the logits (L, n) of L laws over the k-hot vectors of n
units, a z is drawn from each, and all are decoded to the logits y of d Bernoulli variables:

    -log p(x | z) = sum_i softplus(y_i) - x_i y_i.

The prior is uniform over the k-subsets of each vector. Its term is one of three:

- `softmax`, of the papers: the sum over the vectors of KL(softmax(logits) || uniform over the n
  units) = log n - H(softmax(logits)). Every estimator has it. It is no divergence of the law that
  draws (but at k = 1, of laws that are softmax), so the sum of both terms is a loss and bounds
  nothing.
- `softmax_mean`: the mean over the vectors of the same, an L-th of the weight.
- `exact`: the sum of KL(P || prior) = log C(n, k) - H(P), with P the k-subset law of logits /
  tau. Only the estimators that draw from P have it. The sum of both terms is on average minus the
  ELBO: at least -log p(x), for an x of zeros and ones.

**Losses that must be given as values.** The L draws of an example are independent, so its
score is a sum over them, and each has the whole loss of the example as its factor: the gradient
in the logits of vector l is (f - b) (z_l - mu_l), f = -log p(x | z). The baseline b is the mean
f of the other examples in the batch, which do not depend on z. The prior's term is a function of
the logits and has its own gradient.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from khot._checks import check_choice, refuse, work_dtype
from khot._random import Source, row_seeds, seeds_for, seeds_of_items
from khot._solve import Diagnostics
from khot.distributions import KSubset
from khot.estimators import simple, with_losses
from khot.estimators._perturb import NOISES
from khot.models._inclusion import EXACT, KNOWN
from khot.models.feature_selector import ESTIMATORS, check_estimator
from khot.sampling import gumbel_topk

PRIORS = ("softmax", "softmax_mean", "exact")

# Examples that are looked at together where there may be many.
_AT_ONCE = 1000
# Numbers of a layer that are held together, where there are many codes of each example.
_NUMBERS = 2**19


class Terms(NamedTuple):
    """What an example costs, in nats: both (m,), with the gradients of a training step.

    `solved` says how each of the (m, L) rows was solved, if they were.
    """

    reconstruction: Tensor
    prior: Tensor
    solved: Diagnostics | None

    @property
    def loss(self) -> Tensor:
        """Their sum; with the exact prior, on average minus the ELBO."""
        return self.reconstruction + self.prior


class KHotVAE(nn.Module):
    """Encode x as L k-hot vectors of n units, drawn by an estimator, and decode those.

    The draws are hard: an estimator that relaxes gives the k largest of the perturbed logits (its
    option `hard`), the k-hot vector that its relaxed sample stands for. Only in training they may
    be relaxed.

    Args:
        pixels: d, entries of an example.
        latents: L, k-hot vectors.
        n: units of each.
        k: ones of each, whole and in [1, n].
        encoder: widths of the encoder's hidden layers.
        decoder: widths of the decoder's.
        estimator: by its name in the registry.
        prior: how the term of the prior is computed, "softmax", "softmax_mean" or "exact".
        hard: where the estimator relaxes, train on hard draws too, with the gradients of relaxed
            ones; the paper's Gumbel-sigma_k is `gumbel_sigmoid` like this. If not, on relaxed ones.
        strength: lambda of `imle`, how far its second draw is taken along the gradient of the loss
            that is minimised, which shrinks with the batch where that is a mean.
        noise: of `imle`, "sum_of_gamma" or "gumbel".
        tau: temperature of the draws.

    Attributes:
        tau: the same; may be changed between steps, and is part of `state_dict`.

    Raises:
        ValueError: a number is out of range, the estimator takes no such k, or it does not
            draw from the law that the exact prior needs.
    """

    def __init__(
        self,
        pixels: int,
        latents: int,
        n: int,
        k: int,
        *,
        encoder: tuple[int, ...] = (512, 256),
        decoder: tuple[int, ...] = (256, 512),
        estimator: str = "gumbel_sigmoid",
        prior: str = "softmax",
        hard: bool = True,
        strength: float = 1.0,
        noise: str = "sum_of_gamma",
        tau: float = 1.0,
    ) -> None:
        super().__init__()
        check_latents("KHotVAE", n, k, estimator, prior)
        check_choice("KHotVAE", "noise", noise, NOISES)
        self.arguments: dict[str, Any] = {
            **{"pixels": pixels, "latents": latents, "n": n, "k": k},
            **{"encoder": tuple(encoder), "decoder": tuple(decoder)},
            **{"estimator": estimator, "prior": prior, "hard": hard},
            **{"strength": strength, "noise": noise, "tau": tau},
        }
        self.pixels, self.latents, self.n, self.k = pixels, latents, n, k
        self.estimator, self.prior, self.tau = estimator, prior, tau
        self.hard, self.strength, self.noise = hard, strength, noise
        self._row = ESTIMATORS[estimator]
        self.encoder = _network(pixels, *encoder, latents * n)
        self.decoder = _network(latents * n, *decoder, pixels)

    def get_extra_state(self) -> Tensor:
        """Return the temperature, for a law without it is another: it is saved with the weights."""
        return torch.tensor(self.tau, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the temperature that was saved."""
        self.tau = float(state)

    def forward(
        self, x: Tensor, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Terms:
        """Return what the examples x (m, d) cost, each with one draw.

        Args:
            x: in [0, 1].
            generator: where the randomness comes from; torch's own if None.
            seeds: instead, int64 (m,): an example's draws are a function of its own.
        """
        logits = self.encode(x)
        z, solved = self.draw(logits, generator=generator, seeds=seeds)
        y = self.decode(z.detach() if self._row.needs_loss else z)
        costs = self._cost(y, x)
        if self._row.needs_loss and z.requires_grad:
            costs = _with_losses_of_all(z, costs)
        return Terms(costs, self.prior_term(logits), solved)

    def encode(self, x: Tensor) -> Tensor:
        """Return the logits (m, L, n) of the examples x (m, d)."""
        if x.ndim != 2 or x.shape[1] != self.pixels:
            refuse("KHotVAE", f"x must have shape (m, {self.pixels})", str(tuple(x.shape)))
        out: Tensor = self.encoder(x)
        return out.view(-1, self.latents, self.n)

    def decode(self, z: Tensor) -> Tensor:
        """Return the pixel logits (m, d) of the codes z (m, L, n)."""
        if z.shape[1:] != (self.latents, self.n):
            must = f"z must have shape (m, {self.latents}, {self.n})"
            refuse("KHotVAE", must, str(tuple(z.shape)))
        out: Tensor = self.decoder(z.flatten(1))
        return out

    def draw(
        self,
        logits: Tensor,
        *,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
    ) -> tuple[Tensor, Diagnostics | None]:
        """Return codes (m, L, n), and how their probabilities were solved for, if they were.

        Relaxed only in training. Seeds are as in `forward`.
        """
        return self._draw(logits, self.hard or not self.training, generator, seeds)

    def prior_term(self, logits: Tensor) -> Tensor:
        """Return the term of the prior (m,) of codes with these logits (m, L, n)."""
        if self.prior == "exact":
            return self.divergence(logits)
        log_p = logits.log_softmax(-1)
        total = (log_p.exp() * log_p).sum((-2, -1)) + self.latents * math.log(self.n)
        return total / self.latents if self.prior == "softmax_mean" else total

    @property
    def is_exact(self) -> bool:
        """Whether the codes are drawn from the k-subset law, whose divergence is known."""
        return self.estimator in EXACT

    def divergence(self, logits: Tensor) -> Tensor:
        """Return KL(P || prior) (m,) of the k-subset laws P of these logits (m, L, n).

        It is that of the codes where they are drawn from P (`is_exact`).
        """
        law = KSubset(logits / self.tau, self.k, validate_args=False)
        kl: Tensor = law.kl_to_uniform()
        return kl.sum(-1)

    @torch.no_grad()
    def top_cost(self, x: Tensor) -> Tensor:
        """Return -log p(x | z) (m,) of the codes with the k largest logits, without a draw.

        They have the units that are most likely. Where codes are drawn from the k-subset law
        it is the likeliest code of all.
        """
        logits = self.encode(x)
        z = torch.zeros_like(logits).scatter_(-1, logits.topk(self.k).indices, 1.0)
        return self._cost(self.decode(z), x)

    @torch.no_grad()
    def subset_elbo(
        self, x: Tensor, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Tensor:
        """Return a bound of each example, (m,), that any two models can be compared by.

        Whatever law Q its codes have, log p(x) >= E_Q log p(x | z) - KL(Q || prior) for an x of
        zeros and ones. Here Q is the k-subset law of the encoder's logits / tau, also where
        the estimator draws by another, and the expectation is that of one draw. Where the
        estimator draws by that law (`is_exact`) it is the model's own ELBO.
        """
        logits = self.encode(x)
        z = simple(logits, self.k, tau=self.tau, generator=generator, seeds=self._seeds(seeds))
        return -(self._cost(self.decode(z), x) + self.divergence(logits))

    @torch.no_grad()
    def reconstruct(
        self, x: Tensor, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Tensor:
        """Return the pixel probabilities (m, d) of hard codes drawn for the examples x."""
        z, _ = self._draw(self.encode(x), True, generator, seeds)
        return self.decode(z).sigmoid()

    @torch.no_grad()
    def sample(
        self, m: int, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Tensor:
        """Return the pixel probabilities (m, d) of m codes drawn from the prior."""
        # the k largest of n alike: every k-subset is as likely as any other
        device = next(self.parameters()).device
        alike = torch.zeros(m, self.latents, self.n, device=device)
        z = gumbel_topk(alike, self.k, generator=generator, seeds=self._seeds(seeds))
        return self.decode(z).sigmoid()

    @torch.no_grad()
    def usage(self, x: Tensor) -> Tensor:
        """Return the mean inclusion probability of each unit over the examples x, (L, n).

        Where the estimator's law has no known ones, the share of the examples whose code
        has the unit, by one draw each from seeds that are always the same.
        """
        known, dtype = KNOWN.get(self.estimator), work_dtype(x)
        total = torch.zeros(self.latents, self.n, dtype=dtype, device=x.device)
        for index, part in enumerate(x.split(_AT_ONCE)):
            logits = self.encode(part)
            if known is not None:
                p = known(logits, self.k, self.tau)
            else:
                seeds = row_seeds(0, len(part), first=index * _AT_ONCE)
                p, _ = self._draw(logits, True, None, seeds)
            total += p.sum(0, dtype=dtype)
        return (total / len(x)).float()

    @torch.no_grad()
    def unit_effects(
        self,
        x: Tensor,
        *,
        units: Tensor | None = None,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Return how much brighter each pixel is with a unit in the code than without it.

        A hard code is drawn for each example, as in `reconstruct`. In it, a unit that is one
        changes places with one that is zero in the same vector, or the other way round; all
        that it can change with are equally likely. So the code keeps its k ones, and the rest of
        it is that of a real example. The effect is the mean over the examples of

            p(code with the unit) - p(code without it),

        p the pixel probabilities. It is what the unit adds beyond what others of its vector
        would: where the decoder is a linear map, those of a vector sum to 0 on average. Over
        codes of the prior, its expectation would be E[p | unit in] - E[p | unit out].

        Where codes have no fixed size (`pi_st_implicit`, `ncpss`), a unit that has no other to
        change with changes alone.

        Args:
            x: examples (m, d) in [0, 1]; one more decoding of each for every unit.
            units: the indices l n + i of those wanted, int64 (u,); all if None.
            generator: where the randomness comes from; torch's own if None.
            seeds: instead, int64 (m,): what an example adds is a function of its own, and no
                unit's depends on which others are wanted.

        Returns:
            (u, d), in [-1, 1]; its standard error is at most 1 / sqrt(m).

        Raises:
            ValueError: k = n, so that no unit can change, or an index is out of range.
        """
        size, who = self.latents * self.n, "KHotVAE"
        if self.k == self.n:
            refuse(who, f"k must be less than n = {self.n} for a unit to change", str(self.k))
        units = torch.arange(size) if units is None else units
        wrong = int(((units < 0) | (units >= size)).sum())
        if wrong:
            refuse(who, f"units must be in [0, {size - 1}]", f"{wrong} that are not")
        units = units.to(x.device)
        seeds = seeds_for(who, seeds, generator, x.shape[:1], x.device)
        first, rest = self.decoder[0], self.decoder[1:]
        assert isinstance(first, nn.Linear)
        # what the first layer adds for each unit: a changed code differs by two of these, or by
        # one and the last, of no unit
        columns = functional.pad(first.weight.T, (0, 0, 0, 1))
        at_once = _NUMBERS // max((self.pixels, *self.arguments["decoder"])) + 1
        examples = min(at_once, _NUMBERS // size + 1)
        total = x.new_zeros(len(units), self.pixels)
        for part, own in zip(x.split(examples), seeds.split(examples), strict=True):
            z, _ = self._draw(self.encode(part), True, None, own)
            others, sign = self._others(z, own), 1 - 2 * z.flatten(1)
            hidden = first(z.flatten(1)).unsqueeze(1)
            before = rest(hidden).sigmoid()
            chunk = max(at_once // max(len(part), 1), 1)
            for some, sums in zip(units.split(chunk), total.split(chunk), strict=True):
                up = sign[:, some].unsqueeze(-1)
                change = up * (columns[some] - columns[others[:, some]])
                sums.add_((up * (rest(hidden + change).sigmoid() - before)).sum(0))
        return total / len(x)

    def _others(self, z: Tensor, seeds: Tensor) -> Tensor:
        """The index of one that each unit can change places with, (m, L n); -1 if there is none."""
        number = torch.full_like(seeds, self.latents)
        own = seeds_of_items(seeds, number, number)  # the first ones have drawn the codes
        u = Source(own.to(z.device)).uniforms(self.n).view(z.shape)
        ones = z.sum(-1, keepdim=True).long()
        zeros = self.n - ones
        order = z.argsort(dim=-1, stable=True)  # the zeros, then the ones
        start, count = torch.where(z > 0, 0, zeros), torch.where(z > 0, zeros, ones)
        place = start + torch.minimum((u * count).long(), count - 1)
        other = order.gather(-1, place.clamp(min=0))
        other += self.n * torch.arange(self.latents, device=z.device).unsqueeze(-1)
        return other.where(count > 0, -1).flatten(1)

    def _draw(
        self,
        logits: Tensor,
        hard: bool,
        generator: torch.Generator | None,
        seeds: Tensor | None,
    ) -> tuple[Tensor, Diagnostics | None]:
        row = self._row
        options: dict[str, Any] = {"tau": self.tau, "generator": generator}
        options["seeds"] = self._seeds(seeds)
        if "hard" in row.options:
            options["hard"] = hard
        if "strength" in row.options:
            options["strength"] = self.strength
        if "noise" in row.options:
            options["noise"] = self.noise
        if row.with_diagnostics is None:
            return row.function(logits, self.k, **options), None
        return row.with_diagnostics(logits, self.k, **options)

    @staticmethod
    def _cost(y: Tensor, x: Tensor) -> Tensor:
        """-log p(x | z) (m,), of the pixel logits y that z is decoded to."""
        return functional.binary_cross_entropy_with_logits(y, x, reduction="none").sum(-1)

    def _seeds(self, seeds: Tensor | None) -> Tensor | None:
        """A seed for each vector, (m, L), made of those of the examples."""
        if seeds is None:
            return None
        each = seeds_of_items(seeds, torch.full_like(seeds, self.latents))
        return each.view(-1, self.latents)


def check_latents(who: str, n: int, k: int, estimator: str, prior: str) -> None:
    """Refuse a k that is out of range, and what does not go together."""
    check_choice(who, "prior", prior, PRIORS)
    if not 1 <= k <= n:
        refuse(who, f"k must be in [1, {n}], the number of units", str(k))
    check_estimator(who, estimator, k)
    if prior == "exact" and estimator not in EXACT:
        must = f"estimator must be one of {', '.join(EXACT)} for the exact prior"
        refuse(who, must, f"{estimator!r}, whose law has no known divergence from it")


def _network(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _with_losses_of_all(z: Tensor, losses: Tensor) -> Tensor:
    """The losses (m,), with the gradient their values give to each vector of z (m, L, n)."""
    values = losses.detach()
    baseline = (values.sum() - values) / max(len(values) - 1, 1)
    each = values.unsqueeze(-1).expand(z.shape[:-1])
    carried = with_losses(z, each, baseline=baseline.unsqueeze(-1))
    return losses + (carried - each).sum(-1)
