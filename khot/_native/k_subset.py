"""The kernels of the k-subset law; see `k_subset.c`.

k is a float64 column of whole numbers, (R, 1) or one entry for all rows; c that of
sigmoid top-k, (R, 1).
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import address, column, readable

__all__ = ["accepts", "draw", "law", "times_covariance"]

_mixture = Kernel(
    "khot_k_subset_mixture",
    *(POINTER, POINTER, INT64, POINTER, POINTER),  # theta, k and its stride, c, g
    *(POINTER, POINTER, POINTER),  # mu, product, rest
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_draw = Kernel(
    "khot_k_subset_draw",
    *(POINTER, POINTER, INT64, POINTER),  # theta, k and its stride, c
    *(POINTER, POINTER, INT64, INT64, POINTER),  # u, seeds, first, samples, z
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)


def law(theta: Tensor, k: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The marginals, and log Z of theta + c less the positive part of theta + c."""
    units = readable(theta)
    mu, rest = torch.empty_like(units), torch.empty_like(c)
    _call(units, k, c, None, mu, None, rest)
    return mu.to(theta.dtype), rest


def times_covariance(theta: Tensor, k: Tensor, c: Tensor, g: Tensor) -> Tensor:
    """J g, with J the Jacobian of the marginals."""
    units = readable(theta)
    product = torch.empty_like(units)
    _call(units, k, c, g.to(units.dtype).contiguous(), None, product, None)
    return product.to(theta.dtype)


def draw(
    theta: Tensor,
    k: Tensor,
    c: Tensor,
    *,
    u: Tensor | None = None,
    seeds: Tensor | None = None,
    first: int = 0,
    samples: int = 1,
) -> Tensor:
    """k-hot draws (S, R, n) by the numbers u, float64 of that shape, or by those of the seeds."""
    rows, n = theta.shape
    units = readable(theta)
    u = None if u is None else u.contiguous()
    seeds = None if seeds is None else seeds.contiguous()
    z = units.new_zeros(samples if u is None else len(u), rows, n)
    done = _draw[units.dtype](
        units.data_ptr(),
        *column(k),
        c.data_ptr(),
        address(u),
        address(seeds),
        first,
        len(z),
        z.data_ptr(),
        rows,
        n,
        threads(),
    )
    if not done:
        raise MemoryError
    return z.to(theta.dtype)


def _call(
    units: Tensor,
    k: Tensor,
    c: Tensor,
    g: Tensor | None,
    mu: Tensor | None,
    product: Tensor | None,
    rest: Tensor | None,
) -> None:
    rows, n = units.shape
    done = _mixture[units.dtype](
        units.data_ptr(),
        *column(k),
        c.data_ptr(),
        address(g),
        address(mu),
        address(product),
        address(rest),
        rows,
        n,
        threads(),
    )
    if not done:
        raise MemoryError
