r"""Sorted SOFT top-k: a soft indicator of each of the k largest, by entropic transport.

Each unit sends mass 1 to k + 1 anchors: y_l = k - l takes 1 for the ranks l = 0, ..., k-1
(the largest score goes to the largest anchor), and y_k = 0 takes the other n - k. With
squared distances and an entropy term, the plan

    argmin over P >= 0 of  sum_il (x_i - y_l)^2 P_il + epsilon sum_il P_il log P_il

has the form P_il = e^{a_i + b_l + 2 x_i y_l / epsilon}: of the square, x_i^2 goes into
the row's potential a_i and y_l^2 into the column's b_l. Adding a constant to x adds
multiples of y_l, which b_l takes as well, so **shifts change nothing**. Scale does
matter: neighbouring anchors are 1 apart, so two units change places over a difference of
epsilon / 2 in x, whatever the rank. (The paper's code divides the cost by its largest
entry, over the whole batch: there epsilon is relative to the spread of all scores, and a
row depends on the others. Here it does not.)

Rows sum to 1, so P_i = softmax_l(y_l s_i + b_l) with s = 2x / epsilon, and b is such that
the columns have the masses above. `_ranks.py` says how it is found.

**Derivatives.** Let y and a cotangent g of P be taken relative to each unit's likeliest
rank, and let C(u)_il = P_il (u_il - sum_m P_im u_im) be softmax's derivative. The
columns do not move, so db solves A db = -(columns of C(y ds)) with A the Laplacian of
`_ranks.py`, and dP = C(y ds + db). Transposed,

    v = A^-1 (columns of C(g)),    grad_s_i = sum_l y_l C(g - v)_il:

softmax's gradient, after every column of g is centred. This is the paper's Algorithm 4,
and takes O(n k) numbers, O(n k^2) operations for A and O(k^3) for the solution. Relative
to the likeliest rank, no digits are lost where P is near 0 or 1. It is all in torch
operations on (g, P, x, epsilon), P being the operator's own result, so that it can be
differentiated again.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot._checks import refuse
from khot._ranks import laplacian, solve_plan, solved
from khot._rows import count_units, even, flattened, folded, functorch_active, name_arguments
from khot._solve import scale

_WHO = name_arguments("sorted_soft_topk", tau="epsilon", taus=2.0)


def sorted_soft_topk(x: Tensor, k: int, *, epsilon: float | Tensor = 1.0, dim: int = -1) -> Tensor:
    r"""Return a soft indicator of each of the k largest, ranks in a new last dimension.

    .. math:: P_{il} = \operatorname{softmax}_l(2 (k - l) x_i / \epsilon + b_l),
        \qquad \sum_i P_{il} = 1, \quad l = 0, \dots, k - 1

    with one more column, not returned, for the n - k units of no rank. Column l is the
    (l+1)-th largest as a distribution over units: P.mT @ values are the soft sorted
    values. The sum over ranks is a soft k-hot vector: order-preserving, invariant to
    shifts of x, in the k-capped simplex up to the rounding of the sum. As epsilon tends
    to 0 the columns tend to the indicators of the largest, the second largest, and so
    on; tied units share their ranks. With k = 1 it is `soft_topk`.

    What it lacks: it is not `soft_topk` for k > 1, not even summed over the ranks; k is
    one whole number for all rows and has no gradient; it needs O(n k) memory and
    O(n k^2 + k^3) time, some six times over, so thousands of ranks are out of reach;
    there is no C kernel.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it gets
            exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose and rank, a whole number in [0, number of unmasked
            entries of each row].
        epsilon: weight of the entropy > 0, a number or a tensor that broadcasts to the
            shape of x without `dim`. Scores that differ by much less than epsilon / 2
            share ranks.
        dim: the dimension of x that holds the n units.

    Returns:
        Tensor of x's dtype and shape, with k ranks as one more dimension at the end;
        entries in [0, 1], each column sums to 1 over the units.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, by implicit differentiation, in x and epsilon, in reverse and forward mode
        and of any order (of `torch.func` inside `torch.compile`, up to the third), absolute
        to about 1e-13 where ranks hardly mix. O(n k) memory.

    Example:
        >>> import torch, khot
        >>> khot.sorted_soft_topk(torch.tensor([0.5, 3.0, 1.0, 0.0]), 2)
        tensor([[0.0174, 0.2856],
                [0.8992, 0.0992],
                [0.0804, 0.4846],
                [0.0029, 0.1306]])

    References:
        Xie, Dai, Chen, Dai, Zhao, Zha, Wei and Pfister, Differentiable Top-k with
        Optimal Transport (2020), Appendix B; Appendix H, Theorem 3 and Algorithm 4.
    """
    one: object = k
    if isinstance(one, Tensor):
        refuse(_WHO, "k must be one whole number", type(one).__name__, TypeError)
    rows, column, epsilon = flattened(_WHO, x, k, epsilon, dim)
    if not float(k).is_integer():
        refuse(_WHO, "k must be one whole number", f"{k}")
    n, units = count_units(_WHO, rows, column, epsilon / 2), rows.shape[-1]
    # torch.compile goes on with a k that n refuses only when it runs
    ranks = min(max(int(k), 0), units)
    plan = _solve(even(rows, -torch.inf), epsilon, n, ranks)[:, :units, :ranks].to(x.dtype)
    return plan.reshape(*x.movedim(dim, -1).shape, ranks).movedim(-2, dim % x.ndim)


def _solve(x: Tensor, epsilon: Tensor, n: Tensor, k: int) -> Tensor:
    """The plan (R, n, k + 1), under any transformation."""
    if not torch.compiler.is_compiling():
        return _eager(x, epsilon, n, k)
    # torch.compile cannot trace the search for b, and gives up on a Function with a jvp
    if not functorch_active():
        plan: Tensor = _compiled(x, epsilon, n, k)
        return plan
    # and an opaque step has no jvp: so it is a constant, which torch operations polish
    return _polished(_compiled(x.detach(), epsilon.detach(), n, k), x, epsilon)


class _SortedSoft(torch.autograd.Function):
    """(x, epsilon, n, k) -> the plan (R, n, k + 1), for rows x, columns epsilon and n.

    Forward always sees plain tensors (under vmap they arrive folded).
    """

    @staticmethod
    def forward(x: Tensor, epsilon: Tensor, n: Tensor, k: int) -> Tensor:
        # no sum over the ranks may overflow, of scores so far apart that all are hard
        most = torch.where(x > -torch.inf, x, 0.0).abs().amax(-1, keepdim=True).to(epsilon.dtype)
        least = most / (torch.finfo(epsilon.dtype).max / (16 * (k + 1)))
        return solve_plan(scale(x, torch.maximum(epsilon / 2, least)), k, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, epsilon, _, _ = inputs
        ctx.save_for_backward(output, x, epsilon)
        ctx.save_for_forward(output, x, epsilon)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *_backward(g, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, depsilon: Tensor | None, *_: None) -> Any:
        return _jvp(dx, depsilon, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        x, epsilon, n = folded(info.batch_size, in_dims[:3], *inputs[:3])
        return _eager(x, epsilon, n, inputs[3]).unflatten(0, (info.batch_size, -1)), 0


_eager: Callable[[Tensor, Tensor, Tensor, int], Tensor] = _SortedSoft.apply


@torch.library.custom_op("khot::sorted_soft_topk", mutates_args=())
def _compiled(x: Tensor, epsilon: Tensor, n: Tensor, k: int) -> Tensor:
    """The same map for torch.compile, which takes it as one opaque step."""
    return _SortedSoft.forward(x, epsilon, n, k)


@_compiled.register_fake
def _(x: Tensor, epsilon: Tensor, _n: Tensor, k: int) -> Tensor:
    return x.new_empty(*x.shape, k + 1, dtype=epsilon.dtype)


@_compiled.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    x, epsilon, n = folded(info.batch_size, in_dims[:3], *inputs[:3])
    return _compiled(x, epsilon, n, inputs[3]).unflatten(0, (info.batch_size, -1)), 0


_compiled.register_autograd(_SortedSoft.backward, setup_context=_SortedSoft.setup_context)


def _polished(plan: Tensor, x: Tensor, epsilon: Tensor) -> Tensor:
    """The plan as a function of (x, epsilon) that torch can differentiate itself.

    Newton's map has slope 0 at the solution, so one step from there, with the derivatives
    of the logits, has the first derivatives, and a second step those up to the third.
    """
    free = (x > -torch.inf).unsqueeze(-1)
    s = _scores(x, epsilon)
    y = _anchors(plan, plan.argmax(-1, keepdim=True))
    tiny = torch.finfo(plan.dtype).tiny
    logits = plan.clamp(min=tiny).log() + y * (s - s.detach()).unsqueeze(-1)
    for _ in range(2):
        plan = logits.softmax(-1).masked_fill(~free, 0.0)
        db = solved(laplacian(plan), 1 - plan[..., :-1].sum(-2))
        logits = logits + torch.nn.functional.pad(db, (0, 1)).unsqueeze(-2)
    return logits.softmax(-1).masked_fill(~free, 0.0)


def _backward(g: Tensor, plan: Tensor, x: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """The cotangents of x and epsilon, by the formulas of the module docstring."""
    likeliest = plan.argmax(-1, keepdim=True)
    g = g - g.gather(-1, likeliest)
    y = _anchors(plan, likeliest)
    columns = _softmax_slope(plan, g).sum(-2)
    grad_s = (y * _softmax_slope(plan, g - _potentials(plan, columns, likeliest))).sum(-1)
    grad_epsilon = -(grad_s * _scores(x, epsilon)).sum(-1, keepdim=True) / epsilon
    return (grad_s / (epsilon / 2)).to(x.dtype), grad_epsilon.sum_to_size(epsilon.shape)


def _jvp(
    dx: Tensor | None, depsilon: Tensor | None, plan: Tensor, x: Tensor, epsilon: Tensor
) -> Tensor:
    """The tangent of the plan, by the formulas of the module docstring."""
    ds = torch.zeros_like(plan[..., 0])
    if dx is not None:
        ds = ds + dx.to(ds.dtype) / (epsilon / 2)
    if depsilon is not None:
        ds = ds - _scores(x, epsilon) * depsilon / epsilon
    likeliest = plan.argmax(-1, keepdim=True)
    u = _anchors(plan, likeliest) * ds.unsqueeze(-1)
    columns = _softmax_slope(plan, u).sum(-2)
    return _softmax_slope(plan, u - _potentials(plan, columns, likeliest))


def _softmax_slope(plan: Tensor, u: Tensor) -> Tensor:
    """C(u) of the module docstring; u is 0 at the likeliest rank."""
    return plan * (u - (plan * u).sum(-1, keepdim=True))


def _potentials(plan: Tensor, columns: Tensor, likeliest: Tensor) -> Tensor:
    """A^-1 columns and 0 for the rest, for each unit relative to its likeliest rank."""
    v = solved(laplacian(plan), columns[..., :-1])
    v = torch.nn.functional.pad(v, (0, 1)).unsqueeze(-2).expand_as(plan)
    return v - v.gather(-1, likeliest)


def _anchors(plan: Tensor, likeliest: Tensor) -> Tensor:
    """y, for each unit relative to that of its likeliest rank."""
    ranks = torch.arange(plan.shape[-1], dtype=plan.dtype, device=plan.device)
    return likeliest - ranks


def _scores(x: Tensor, epsilon: Tensor) -> Tensor:
    """s, up to a constant: from the row's largest down, and 0 where x is masked."""
    free = x > -torch.inf
    largest = x.amax(-1, keepdim=True)
    below = torch.where(free, x, largest) - largest
    below = torch.where(free, below, 0.0)  # a row that is all masked
    return below.to(epsilon.dtype) / (epsilon / 2)
