"""Table 3, read as pixels, by the paper's own settings and nothing else.

Adam at 0.001 for the network and the mask logits alike, which begin at 0, tau = 1, hard masks, no
tuning, no falling rates, nothing chosen by validation. The paper names neither the batch size, here
128, nor the number of epochs: so the test rows are looked at after every fifth, with the k most
probable pixels, and with a mask drawn for each row. A train loss is the mean of the epoch's steps.

It reads the pictures where the server does, KHOT_DATA_DIR; --smoke has ten digits of noise.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import harness
import torch
from bench_table3_limits import BATCH, SOURCES, Data, noise, pictures
from torch.nn.functional import binary_cross_entropy_with_logits

from khot.models import FeatureSelector
from khot_client.reproduce.published import NAMES, TABLE3

K, HIDDEN, RATE = 50, (512, 256), 1e-3
EPOCHS, EVERY = 30, 5

Row = dict[str, object]


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    if options.smoke:
        rows = [row for name in NAMES for row in measure("noise", name, noise(), k=5, epochs=5)]
    else:  # a core for each
        runs = [(dataset, name) for name in NAMES for dataset in SOURCES]
        with ProcessPoolExecutor(len(SOURCES), get_context("spawn")) as pool:
            rows = [row for rows in pool.map(of_pictures, runs) for row in rows]
    harness.report("table3_published", rows, options.out)


def of_pictures(run: tuple[str, str]) -> list[Row]:
    torch.set_num_threads(1)
    dataset, method = run
    return list(measure(dataset, method, pictures(dataset), K, EPOCHS))


def measure(dataset: str, method: str, data: Data, k: int, epochs: int) -> Iterator[Row]:
    """A row for every fifth epoch."""
    torch.manual_seed(0)
    n = data.x.shape[1]
    selector = FeatureSelector(
        n, None, k, hidden=HIDDEN, estimator=method, hard=True, reconstructs=True
    )
    optimizer = torch.optim.Adam(selector.parameters(), lr=RATE, fused=True)
    theirs = TABLE3.get((dataset, method))
    for epoch in range(1, epochs + 1):
        selector.train()
        total = 0.0
        for part in torch.randperm(len(data.x)).split(BATCH):
            optimizer.zero_grad()
            x = data.x[part]
            loss = binary_cross_entropy_with_logits(selector(x), x)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(part)
        if epoch % EVERY == 0:
            yield {
                "data set": dataset,
                "method": method,
                "epoch": epoch,
                "train loss": f"{total / len(data.x):.4f}",
                "test loss": f"{tested(selector.eval(), data):.4f}",
                "test loss, drawn masks": f"{tested(selector.train(), data):.4f}",
                "published": theirs.mean if theirs else "",
            }


@torch.no_grad()
def tested(selector: FeatureSelector, data: Data) -> float:
    """The mean loss of a pixel of the test rows, with the masks of the selector's mode."""
    return float(binary_cross_entropy_with_logits(selector(data.test_x), data.test_x))


if __name__ == "__main__":
    main()
