r"""Laws over k-hot vectors, as `torch.distributions` has them.

`khot/_ksubset.py` holds the mathematics, on rows; here are shapes, checks and names.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from khot import _checks, _ksubset, _random
from khot._rows import transformed

_WHO = "KSubset"


class _KHot(constraints.Constraint):
    """Zeros and exactly k ones along the last dimension."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: Tensor) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == self.k)


class KSubset(Distribution):
    r"""The k-subset law: P(z) proportional to exp(<logits, z>) over the z with k ones.

    .. math:: P(z) = e^{\langle \theta, z \rangle} / Z, \qquad
        z \in \{0, 1\}^n, \quad \sum_i z_i = k

    It is the law of independent units, each taken with probability sigmoid(logits), given
    that k are taken (conditional Poisson sampling), and of all laws with its marginals
    the one of greatest entropy. k = 1 is the categorical law. All but the draws and pairs is O(n),
    a draw O(k (n - k)), the pairs O(n^2).

    Args:
        logits: (..., n), float64, float32, bfloat16 or float16; the batch shape is that
            before n. -inf masks a unit, which is then never taken.
        k: how many are taken: a whole number from 0 to the number of unmasked units, or
            a tensor of such that broadcasts to the batch shape.
        validate_args: False leaves the values of arguments and of z unchecked.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact in the logits, of any order: of log_prob it is z - marginals, of log_partition the
        marginals, of the marginals the covariance of z. Draws have none.

    Example:
        >>> import torch, khot
        >>> law = khot.KSubset(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        >>> law.marginals
        tensor([0.8808, 0.6944, 0.3056, 0.1192])
        >>> law.log_prob(law.mode)
        tensor(-0.5345)

    References:
        SIMPLE: A Gradient Estimator for k-Subset Sampling, Propositions 1 to 4, Theorem 1,
        Algorithms 1 to 6.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    logits: Tensor
    k: Tensor
    _checked: bool

    def __init__(self, logits: Tensor, k: int | Tensor, validate_args: bool | None = None) -> None:
        _checks.check_scores(_WHO, logits, -1, name="logits")
        batch = logits.shape[:-1]
        column = _checks.per_row(_WHO, "k", k, logits, batch).detach()
        # not torch's own flag, whose default torch.compile turns off
        self._checked = validate_args is not False
        if self._checked and not transformed():
            _refuse_values(logits, column)
        self.logits = logits
        self.k = column.to(torch.int64).expand(max(1, batch.numel()), 1)[: batch.numel()]
        self.k = self.k.reshape(batch)
        super().__init__(batch, logits.shape[-1:], validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size | list[int] | tuple[int, ...], _instance: Any = None
    ) -> "KSubset":
        """The same law for each entry of a batch shape that this one broadcasts to."""
        new: KSubset = self._get_checked_instance(KSubset, _instance)  # type: ignore[no-untyped-call]
        batch = torch.Size(batch_shape)
        new.logits = self.logits.expand(*batch, *self.event_shape)
        new.k = self.k.expand(batch)
        super(KSubset, new).__init__(batch, self.event_shape, validate_args=False)
        new._validate_args, new._checked = self._validate_args, self._checked
        return new

    def __repr__(self) -> str:
        k = int(self.k) if self.k.ndim == 0 else f"of shape {tuple(self.k.shape)}"
        return f"KSubset(logits of shape {tuple(self.logits.shape)}, k {k})"

    @property
    def support(self) -> constraints.Constraint:
        """Zeros and exactly k ones."""
        return _KHot(self.k)

    @property
    def marginals(self) -> Tensor:
        """The inclusion probabilities E z, (batch, n); they sum to k."""
        mu, _, _ = _ksubset.law(*self._rows(self.logits))
        return mu.reshape(self.logits.shape)

    @property
    def mean(self) -> Tensor:
        """`marginals`."""
        return self.marginals

    @property
    def variance(self) -> Tensor:
        """Of each unit: mu (1 - mu)."""
        mu = self.marginals
        return mu * (1 - mu)

    @property
    def mode(self) -> Tensor:
        """The likeliest z: the k largest logits, of equal ones the first."""
        order = self.logits.detach().sort(stable=True, dim=-1, descending=True).indices
        first = torch.arange(order.shape[-1], device=order.device) < self.k.unsqueeze(-1)
        z = torch.zeros_like(self.logits, requires_grad=False)
        return z.scatter_(-1, order, first.to(z.dtype))

    @property
    def log_partition(self) -> Tensor:
        """log Z, in the batch shape."""
        theta, k = self._rows(self.logits)
        _, rest, c = _ksubset.law(theta, k)
        t = (theta.to(k.dtype) + c).clamp(min=0)
        return self._batch((t.sum(-1, keepdim=True) - k * c) + rest)

    def log_prob(self, z: Tensor) -> Tensor:
        """log P(z) for k-hot z (..., batch, n), in z's shape without n.

        It is -inf where z has a masked unit.

        Raises:
            ValueError: z does not have zeros and exactly k ones.
        """
        if not isinstance(z, Tensor):
            _checks.refuse(
                f"{_WHO}.log_prob", "z must be a torch.Tensor", type(z).__name__, TypeError
            )
        if self._checked and not transformed():
            self._refuse_sample(z)
        theta, k = self._rows(self.logits)
        _, rest, c = _ksubset.law(theta, k)
        t = (theta.to(k.dtype) + c).reshape(self.logits.shape)
        in_z = z > 0.5
        # -|t| for each unit that is not as the sign of t has it
        paid = torch.where(t > 0, torch.where(in_z, 0.0, -t), torch.where(in_z, t, 0.0))
        return (paid.sum(-1) - rest.reshape(self.batch_shape)).to(self.logits.dtype)

    def entropy(self) -> Tensor:
        """-E log P(z), in the batch shape; computed in float64."""
        return self._batch(self._entropy())

    def kl_to_uniform(self) -> Tensor:
        """KL(P || uniform over the k-subsets of the unmasked units) = log C(n, k) - entropy."""
        theta, k = self._rows(self.logits)
        n = (theta > -torch.inf).sum(-1, keepdim=True).to(k.dtype)
        subsets = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        return self._batch(_at_least_0(subsets - self._entropy()))

    def joint_inclusion(self) -> Tensor:
        """P(z_i = z_j = 1), (batch, n, n); its diagonal is `marginals`."""
        n = self.event_shape[0]
        return _ksubset.joint(*self._rows(self.logits)).reshape(*self.batch_shape, n, n)

    def sample(
        self,
        sample_shape: torch.Size | list[int] | tuple[int, ...] = (),
        *,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Exact draws, (sample_shape, batch, n), of zeros and exactly k ones.

        Args:
            sample_shape: how many for each law.
            generator: where the randomness comes from; torch's own if None.
            seeds: instead, int64 of a shape that broadcasts to the batch shape: a law's draws are
                then a function of its seed, logits and k, alone or in any batch. `row_seeds`
                makes them.

        Raises:
            TypeError: seeds are not int64.
            ValueError: both generator and seeds are given, or a shape does not fit.
        """
        shape = torch.Size(sample_shape)
        source = _random.seeds_for(_WHO, seeds, generator, self.batch_shape, self.logits.device)
        theta, k = self._rows(self.logits.detach())
        z = _ksubset.draw(theta, k, seeds=source, samples=shape.numel())
        return z.reshape(*shape, *self.batch_shape, *self.event_shape)

    def _entropy(self) -> Tensor:
        """(R, 1): rest, and |t| times the probability that a unit is not as t's sign has it."""
        theta, k = self._rows(self.logits.to(_checks.work_dtype(self.logits)))
        mu, rest, c = _ksubset.law(theta, k)
        t = torch.where(theta > -torch.inf, theta + c, 0.0)
        paid = torch.where(t > 0, t * (1 - mu), -t * mu).sum(-1, keepdim=True)
        return _at_least_0(rest + paid)

    def _rows(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """theta (R, n), and k as a column."""
        theta = logits.reshape(-1, logits.shape[-1])
        return theta, self.k.reshape(-1, 1).to(_checks.work_dtype(logits))

    def _batch(self, column: Tensor) -> Tensor:
        return column.reshape(self.batch_shape).to(self.logits.dtype)

    def _refuse_sample(self, z: Tensor) -> None:
        who = f"{_WHO}.log_prob"
        n = self.event_shape[0]
        try:
            fits = torch.broadcast_shapes(z.shape, self.logits.shape)[-1] == z.shape[-1] == n
        except (RuntimeError, IndexError):
            fits = False
        if not fits:
            must = f"z must broadcast with the logits, shape {tuple(self.logits.shape)}"
            _checks.refuse(who, must, f"shape {tuple(z.shape)}")
        good = self.support.check(z.to(self.k.device))
        if not bool(good.all()):
            got = f"another in {int((~good).sum())} of {good.numel()} rows"
            _checks.refuse(who, "z must have zeros and exactly k ones", got)


def _at_least_0(x: Tensor) -> Tensor:
    """x without the rounding that makes it negative, and with all its derivatives."""
    return x + (x.clamp(min=0) - x).detach()


def _refuse_values(logits: Tensor, k: Tensor) -> None:
    """Refuse what only the values show; one look at the device when all is well."""
    theta = logits.detach().reshape(-1, logits.shape[-1])
    free = (theta > -torch.inf).sum(-1, keepdim=True)
    bad = (theta.isnan() | (theta == torch.inf)).any(-1, keepdim=True)
    part = k != k.round()
    out = ~((k >= 0) & (k <= free))
    if not bool((bad | part | out).any()):
        return
    of = f"of {len(theta)} rows"
    if bad.any():
        got = f"NaN or +inf in {int(bad.sum())} {of}"
        _checks.refuse(_WHO, "logits must hold finite numbers or -inf", got)
    one = k.numel() == 1
    if part.any():
        got = f"{float(k):g}" if one else f"another value in {int(part.sum())} {of}"
        _checks.refuse(_WHO, "k must be whole", got)
    got = f"another value in {int(out.sum())} {of}"
    if one:
        got = f"k = {float(k):g} for n = {int(free.min())}"
    _checks.refuse(_WHO, "k must be in [0, n], n the number of logits above -inf", got)
