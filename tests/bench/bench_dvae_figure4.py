"""The right half of SIMPLE's Figure 4, by its own ELBO and by what its published code draws.

Two VAEs of twenty one-hot vectors of n = 20: SIMPLE and straight-through Gumbel-softmax at tau = 1,
as in the notebooks that its authors published (Adam at 0.001, batches of 100, all training rows,
grey pixels). Both are trained by the sum of reconstruction and divergence, `loss`: minus the ELBO,
as at k = 1 the code's law is softmax. What those notebooks evaluate, and the figure draws, is the
reconstruction and the divergence of the *10*-subset law of the same logits from its own uniform
law, `drawn in the figure`: it is that of the figure's left half. Tested after every epoch: curves,
no choice by test rows.

It reads the pictures where the server does, KHOT_DATA_DIR; --smoke has examples of noise.
--picture draws both curves.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import harness
import torch
from bench_table3_limits import pictures
from torch import Tensor

from khot import KSubset, row_seeds
from khot.models import KHotVAE
from khot_client.reproduce import picture

METHODS = {"simple": "SIMPLE", "st_gumbel_softmax": "ST Gumbel-softmax, tau = 1"}
LATENTS, N, FIGURES_K = 20, 20, 10
BATCH, RATE, EPOCHS = 100, 1e-3, 20
AT_ONCE = 1000
LOSS, DRAWN = "loss", "drawn in the figure"

Row = dict[str, object]


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="both curves, as PNG")
    if options.smoke:
        x = torch.rand(40, 20, generator=torch.Generator().manual_seed(0))
        rows = [row for name in METHODS for row in measure(name, x, x, epochs=2)]
    else:  # a core for each
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            rows = [row for rows in pool.map(of_mnist, METHODS) for row in rows]
    harness.report("dvae_figure4", rows, options.out)
    if options.picture:
        draw(rows, options.picture)


def of_mnist(method: str) -> list[Row]:
    torch.set_num_threads(1)
    data = pictures("mnist")
    return measure(method, data.x, data.test_x, EPOCHS)


def measure(method: str, x: Tensor, test: Tensor, epochs: int) -> list[Row]:
    """A row for each epoch."""
    torch.manual_seed(0)
    model = KHotVAE(x.shape[1], LATENTS, N, 1, estimator=method, hard=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    rows: list[Row] = []
    for epoch in range(1, epochs + 1):
        seeds = row_seeds(epoch, len(x))
        for part in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            model(x[part], seeds=seeds[part]).loss.mean().backward()
            optimizer.step()
        losses = evaluated(model, test)
        rows.append({"method": method, "epoch": epoch} | {n: f"{v:.2f}" for n, v in losses.items()})
    return rows


@torch.no_grad()
def evaluated(model: KHotVAE, x: Tensor) -> Mapping[str, float]:
    """The mean of both losses over the rows of x, by one draw of each."""
    total = torch.zeros(2, dtype=torch.float64)
    for part, seeds in zip(x.split(AT_ONCE), row_seeds(0, len(x)).split(AT_ONCE), strict=True):
        terms = model(part, seeds=seeds)
        of_ten = KSubset(model.encode(part), FIGURES_K).kl_to_uniform().sum(-1)
        both = torch.stack((terms.loss, terms.reconstruction + of_ten))
        total += both.sum(-1, dtype=torch.float64)
    return dict(zip((LOSS, DRAWN), (total / len(x)).tolist(), strict=True))


def draw(rows: Sequence[Row], path: Path) -> None:
    titles = {
        LOSS: "minus the ELBO (the loss)",
        DRAWN: "as the paper draws it: divergence of 10-subsets",
    }
    with picture.panels(path, len(titles)) as axes:
        for axis, (column, title) in zip(axes, titles.items(), strict=True):
            for colour, (method, name) in zip(picture.COLOURS, METHODS.items(), strict=False):
                its = [row for row in rows if row["method"] == method]
                points = [(int(str(row["epoch"])), float(str(row[column]))) for row in its]
                axis.plot(*zip(*points, strict=True), "-", color=colour, label=name)
            axis.set_title(title)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_ylabel("nats, test rows")
            axis.legend(frameon=False, fontsize="small")


if __name__ == "__main__":
    main()
