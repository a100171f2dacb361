"""A k-hot layer on a server, as a module of PyTorch. Importing this imports torch.

Forward is one call and backward another, to which nothing is kept on the server in between: a
relaxation is a function of its arguments, a draw of its arguments and seed, so the server
computes them again. One call for both there cannot be: the gradient needs the cotangent, which
comes from what the caller makes of the value.

The server derives the seed of each row from the one seed of a call, as `khot.row_seeds` does.
So for x of shape (..., n), these are equal, bit for bit:

    RemoteKHot(address, "pi_st", k)(x, seed=seed)
    khot.pi_st(x, k, seeds=khot.row_seeds(seed, x[..., 0].numel()).reshape(x.shape[:-1]))

So are their gradients, but for this: the server differentiates in k and tau in any case, and
in float32 the library's kernels round the gradient in x otherwise if they do.

Without a seed, `draw_seed` takes one from torch's random numbers, once for each forward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from khot_client.client import TIMEOUT_S, Client
from khot_client.link import Link
from khot_client.messages import invalid
from khot_client.settings import PathLike
from khot_client.values import RELAXATION, Gradients, Operator

__all__ = ["RemoteKHot", "draw_seed"]

Argument = int | float | Tensor | nn.Module
SEEDS = 2**63 - 1
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class RemoteKHot(nn.Module):
    """An operator of a khot service as a layer: forward calls it, backward asks for the gradient.

    k and tau may each be a number, a tensor (kept as a buffer), an `nn.Parameter`, or a module
    that returns one when called, such as `khot.modules.LearnableK`. The function is the same in
    training and in evaluation.

    Args:
        address: host:port; None for `$KHOT_ADDRESS`, a profile, or this machine; or a `Client`,
            whose connection is then used, and left open.
        operator: a relaxation, estimator or design of `Client.list_operators()`.
        k: how many to choose; tensors broadcast to the shape of x without its last dimension. None:
            it is given to each forward, or the operator has a default.
        tau: temperature above 0, like k, whatever the operator calls it; None: 1.
        options: the operator's own keywords, such as {"p": 4 / 3}.
        num_samples: of estimators and designs: how many draws of each row, as a first dimension;
            None: one, without.
        token: as in `Client`.
        tls: as in `Client`.
        profile: as in `Client`.
        timeout_s: how long each call may take, retries included; None: the client's own.

    Raises:
        BadSettings: the address, token or certificate cannot be used.
        InvalidRequest: an argument is of the wrong type.

    Gradient:
        That of the operator, in x, k and tau: exact for relaxations, what the registry says for
        estimators, none for designs. Differentiating twice is refused. What needs the value of the
        loss, `score_function`, gets it by `khot.with_losses`, as it does here.

    The connection is made on first use. A copy shares it; a pickle has the settings but for the
    token, which then comes from `$KHOT_TOKEN` or the profile. A process that was forked connects
    anew, but gRPC is at ease only where processes are spawned: leave the layer out of a
    DataLoader's workers, or give it `multiprocessing_context="spawn"`.
    """

    def __init__(
        self,
        address: str | Client | None = None,
        operator: str = RELAXATION,
        k: Argument | None = None,
        *,
        tau: Argument | None = None,
        options: Mapping[str, Any] | None = None,
        num_samples: int | None = None,
        token: str | None = None,
        tls: bool | PathLike | None = None,
        profile: str | None = None,
        timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        super().__init__()
        if not isinstance(operator, str):
            _refuse("operator", "must be a name", type(operator).__name__)
        self._link = Link(address, token=token, tls=tls, profile=profile)
        self.operator, self.options, self.num_samples = operator, dict(options or {}), num_samples
        self.timeout_s = timeout_s
        for name, value in {"k": k, "tau": tau}.items():
            if isinstance(value, bool) or not isinstance(value, Argument | None):
                _refuse(name, "must be a number, a tensor or a module", type(value).__name__)
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # a call cannot be traced
    def forward(
        self,
        x: Tensor,
        k: float | Tensor | None = None,
        *,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the soft k-hot vectors, or the draws, of the rows of x.

        Args:
            x: scores of shape (..., n), on any device: float64, float32, float16, or bfloat16,
                which travels as float32, as it is computed in, and comes back rounded.
            k: in place of the layer's own.
            seed: of the draws, in [0, 2**64).
            generator: where a seed comes from if none is given; None: torch's own.

        Returns:
            Tensor of x's shape, dtype and device; after num_samples if given; with k columns more
            where the operator has one for each rank.

        Raises:
            KhotError: the call failed, or was refused. Backward raises it as well.
        """
        if not isinstance(x, Tensor):
            _refuse("x", "must be a torch.Tensor", type(x).__name__)
        if x.dtype not in FLOATS or x.ndim == 0:
            must = "must be a floating-point tensor of shape (..., n)"
            _refuse("x", must, f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}")
        call = self._call(seed, generator)
        travels = x.float() if x.dtype == torch.bfloat16 else x
        rows, leading = travels.reshape(-1, x.shape[-1]).cpu(), x.shape[:-1]
        learned = call.row.properties.get("differentiable_in", "").split(", ")
        value = _remote(
            call,
            rows,
            _per_row("k", self.k if k is None else k, leading, learned="k" in learned),
            _per_row("tau", self.tau, leading),
        )
        samples = 0 if self.num_samples is None else 1
        shape = (*value.shape[:samples], *leading, *value.shape[samples + 1 :])
        return value.reshape(shape).to(x.device, x.dtype)

    def _call(self, seed: int | None, generator: torch.Generator | None) -> "_Call":
        client, row = self._link.operator(self.operator)
        draws = row.kind != "relaxation"
        if not draws:
            given = {"seed": seed, "generator": generator, "num_samples": self.num_samples}
            for name, value in given.items():
                if value is not None:
                    _refuse(name, f"must be None, as {row.name} draws nothing", "another")
        elif seed is None:
            seed = draw_seed(generator)
        elif generator is not None:
            _refuse("generator", "must be None where a seed is given", "both")
        return _Call(client, row, self.options, self.num_samples, seed, self.timeout_s)

    def extra_repr(self) -> str:
        """Show the settings, without the token; a module among them is shown as a child."""
        shown = [f"{self._link.address!r}", f"{self.operator!r}"]
        for name in ("k", "tau", "options", "num_samples"):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                shown.append(f"{name}=tensor of shape {tuple(value.shape)}")
            elif not (isinstance(value, nn.Module) or value is None or value == {}):
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


def draw_seed(generator: torch.Generator | None = None) -> int:
    """Return a seed in [0, 2**63 - 1) for a layer, the one it would take without any.

    Args:
        generator: where the randomness comes from; None: torch's own.
    """
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(SEEDS, (), generator=generator, device=device))


@dataclass(frozen=True)
class _Call:
    """What the calls of a forward and its backward have in common."""

    client: Client
    row: Operator
    options: Mapping[str, Any]
    num_samples: int | None
    seed: int | None
    timeout_s: float | None

    def value(self, x: Tensor, k: Tensor | None, tau: Tensor | None) -> NDArray[Any]:
        given = self._given(x, k, tau)
        if self.seed is None:
            return self.client.relax(**given).p
        return self.client.sample(**given, **self._draw).z

    def gradients(
        self, x: Tensor, k: Tensor | None, tau: Tensor | None, z: Tensor | None, g: Tensor
    ) -> Gradients:
        given = self._given(x, k, tau)
        if self.seed is None:
            return self.client.relax_vjp(g=g.numpy(), **given)
        if z is None:
            return self.client.sample_vjp(g=g.numpy(), **given, **self._draw)
        # the gradient of one that needs the loss is <g, z> times its score, so that is the loss
        losses = (g * z).sum(-1).numpy()
        return self.client.sample_vjp(losses=losses, **given, **self._draw)

    def _given(self, x: Tensor, k: Tensor | None, tau: Tensor | None) -> dict[str, Any]:
        return {
            "x": x.numpy(),
            "k": None if k is None else k.numpy(),
            "tau": None if tau is None else tau.numpy(),
            "operator": self.row.name,
            "options": self.options,
            "timeout_s": self.timeout_s,
        }

    @property
    def _draw(self) -> dict[str, Any]:
        return {"seed": self.seed, "num_samples": self.num_samples}


class _Remote(torch.autograd.Function):
    """(call, x (R, n), k and tau, each None, () or (R,)) -> value, all on the CPU."""

    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, k: Tensor | None, tau: Tensor | None) -> Tensor:
        value = torch.tensor(call.value(x, k, tau)).to(x.dtype)
        if call.row.kind == "design":
            ctx.mark_non_differentiable(value)
        needs_loss = call.row.properties.get("needs_loss") == "true"
        ctx.call = call
        ctx.save_for_backward(x, k, tau, value if needs_loss else None)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        found = ctx.call.gradients(*ctx.saved_tensors, g)
        pulled = zip((None, found.x, found.k, found.tau), ctx.needs_input_grad, strict=True)
        return tuple(
            torch.tensor(array) if wanted and array is not None else None
            for array, wanted in pulled
        )


_remote: Callable[..., Tensor] = _Remote.apply


def _per_row(
    name: str, given: Argument | None, leading: torch.Size, *, learned: bool = True
) -> Tensor | None:
    """One number as (), one a row as (R,), with its gradient; in float64, on the CPU."""
    value = given() if isinstance(given, nn.Module) else given
    if value is None:
        return None
    if not isinstance(value, Tensor):
        return torch.tensor(value, dtype=torch.float64)
    numbers = value.cpu().double()
    if numbers.numel() == 1 and not (learned and numbers.requires_grad):
        return numbers.detach().reshape(())
    try:
        # one that is learned as well: so its gradient is summed as the library's would be
        return numbers.expand(leading).reshape(-1)
    except RuntimeError:
        must = f"must broadcast to the rows, shape {tuple(leading)}"
        _refuse(name, must, f"shape {tuple(value.shape)}")


def _refuse(field: str, must: str, got: str) -> NoReturn:
    raise invalid(field, must, got)
