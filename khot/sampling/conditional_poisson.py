r"""Conditional Poisson sampling: independent draws, given that k units were drawn.

The law is P(z) proportional to exp(<theta, z>) over the z with k ones: of all laws with its
inclusion probabilities the one of greatest entropy, and one whose log P(z), pairs and entropy
are known (`khot.KSubset`).

**As it stands**, theta = logit(pi): the inclusion probabilities are not pi, but only near it if
sum pi (1 - pi) is large (off by 0.05 for ten units of logits -4 to 4). This is SIMPLE's law.

**Fitted**, theta is such that they are pi: `khot/_ksubset_fit.py` says how it is found. A draw
is a walk over the units (`khot/_ksubset_ratios.py`), which takes number i of its sample's
for unit i.
"""

import torch
from torch import Tensor

from khot import _checks, _ksubset, _ksubset_fit
from khot._random import Source
from khot.sampling import _draw

_WHO = "conditional_poisson"


def conditional_poisson(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    fitted: bool = True,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities pi, of the greatest entropy.

    .. math:: P(z) \propto e^{\langle \theta, z \rangle}, \qquad z \in \{0, 1\}^n, \quad
        \sum_i z_i = k

    with theta such that E[z] = pi if `fitted`, and theta = logit(pi) if not. What has theta,
    log P(z) and the pairs is `khot.KSubset`.

    Args:
        pi: inclusion probabilities in [0, 1], float64, float32, bfloat16 or
            float16, such as those of `sigmoid_topk`. Their sum along `dim` is taken
            for the whole number k that it is within max(1e-6, 4 eps) max(1, k) of,
            with eps that of the dtype, and at most 1/4. A sum that is near no whole
            number is drawn with a phantom unit (`khot/sampling/_draw.py`). Units at
            exactly 0 or 1 get that always.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
            Unless fitted, these logits are theta: the law is KSubset(logits, k).
        fitted: whether the inclusion probabilities are pi, to 1e-12.
        num_samples: how many draws of each row, as a new first dimension. The first
            is the draw without it. The fit and the table serve all of them.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, int64 of a shape that broadcasts to that of pi without
            `dim`: a row's draw is then a function of its seed and its pi, alone or in
            any batch. `row_seeds` makes them.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and
        exactly k ones along `dim`; floor(k) or floor(k) + 1 if k is not whole.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, both generator and
            seeds are given, or a row cannot be fitted.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.conditional_poisson(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 0., 0., 1.])

    References:
        Chen, Dempster and Liu (1994), Weighted finite population sampling to maximize
        entropy; SIMPLE, Algorithm 2, for the draw.
    """
    dtype = None
    if k is not None and not fitted and isinstance(pi, Tensor) and pi.dtype.itemsize < 8:
        # sigmoid_topk of a float rounds what the logits say of nearly certain units
        dtype = pi.dtype if pi.dtype in _checks.FLOAT_DTYPES else None
        pi = pi.to(_checks.work_dtype(pi)) if dtype else pi
    z = _draw.sample(
        _WHO,
        _fitted if fitted else _as_it_stands,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )
    return z if dtype is None else z.to(dtype)


def _fitted(p: Tensor, k: Tensor, source: Source) -> Tensor:
    """Rows p (R, n) to zeros and ones (S, R, n), as `_draw` has it."""
    return _drawn(p, *_ksubset_fit.inverse(_WHO, p, k, _draw.row_sum), source)


def _as_it_stands(p: Tensor, k: Tensor, source: Source) -> Tensor:
    return _drawn(p, *_ksubset_fit.free(p, k), source)


def _drawn(p: Tensor, theta: Tensor, left: Tensor, source: Source) -> Tensor:
    z = _ksubset.draw(theta, left, seeds=source.seeds, samples=source.samples)
    return z + (p == 1).to(z.dtype)
