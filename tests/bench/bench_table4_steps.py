"""A training step of each method of the paper's Table 4, beside the same written plainly.

The variational autoencoder of `khot.models`, 128 examples of 784 pixels, encoder 512-256, decoder
256-512, small (ten vectors, n = 10, k = 5) and large (one, n = 1000, k = 500), Adam, one thread.
`plain` draws by `plain_methods.py`, in the same networks; the large SIMPLE keeps 2.6 GB there.
`dense` has sigmoids of the logits for a code and draws nothing. "must" is the most that
khot / dense may be. "epoch s" is a step times those of an epoch over 55,000 examples: without
evaluations and checkpoints.
"""

from collections.abc import Callable
from typing import NamedTuple

import harness
import plain_methods
import torch
import turns
from torch import Tensor

from khot._solve import Diagnostics
from khot.models import KHotVAE

BUDGET_S = 6.0  # for each method
PIXELS = 784
EXAMPLES = 55_000  # of MNIST, without those for validation
MUST = {("large", "pi_st"): 1.3}

Code = Callable[[Tensor], Tensor]  # of logits (m, L, n)


class Size(NamedTuple):
    """Examples, vectors, units and ones."""

    batch: int
    latents: int
    n: int
    k: int


SIZES = {"small": Size(128, 10, 10, 5), "large": Size(128, 1, 1000, 500)}
SMOKE = {"small": Size(4, 2, 6, 3), "large": Size(4, 1, 12, 6)}

METHODS = plain_methods.METHODS | {"gumbel_sigmoid": plain_methods.gumbel_sigmoid_hard}


class CodedVAE(KHotVAE):
    """The same with another code in place of the estimator's."""

    code: Code

    def draw(
        self,
        logits: Tensor,
        *,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
    ) -> tuple[Tensor, Diagnostics | None]:
        return self.code(logits), None


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, budget_s = (SMOKE, 0.0) if options.smoke else (SIZES, BUDGET_S)
    rows = [measure(vae, sizes[vae], name, budget_s) for vae in sizes for name in METHODS]
    harness.report("table4_steps", rows, options.out)


def measure(vae: str, size: Size, name: str, budget_s: float) -> dict[str, object]:
    method = METHODS[name]

    def plain(logits: Tensor) -> Tensor:
        return method(logits.flatten(0, 1), size.k, 1).view(logits.shape)

    codes: dict[str, Code | None] = {"dense": torch.sigmoid, "khot": None, "plain": plain}
    candidates = {key: step(size, name, code) for key, code in codes.items()}
    seconds = turns.taken(candidates, budget_s)
    ms = {key: turns.milliseconds(seconds, key) for key in codes}
    steps = -(-EXAMPLES // size.batch)
    return {
        "vae": vae,
        "method": name,
        **{f"{key} ms": each for key, each in ms.items()},
        **{f"{key} epoch s": ms[key] * steps / 1000 for key in ("khot", "plain")},
        "plain / khot": turns.ratio(seconds, "plain", "khot"),
        "khot / dense": turns.ratio(seconds, "khot", "dense"),
        "must": MUST.get((vae, name), "-"),
    }


def step(size: Size, estimator: str, code: Code | None = None) -> Callable[[], object]:
    """A training that has just begun, to be called for each of its steps."""
    kind = KHotVAE if code is None else CodedVAE
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hard = estimator == "gumbel_sigmoid"  # as in the paper; softsub learns on relaxed draws
        vae = kind(PIXELS, *size[1:], estimator=estimator, hard=hard)
        x = torch.rand(size.batch, PIXELS)
    if isinstance(vae, CodedVAE):
        assert code is not None
        vae.code = code
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        vae(x).loss.mean().backward()
        optimizer.step()

    return run


if __name__ == "__main__":
    main()
