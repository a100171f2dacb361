"""Draw masks for 10,000 rows from many tasks at once, as another service would.

    khot up &
    python client/examples/sample_in_batches.py

Each task stands for a request that this service is answering, and asks for one row at a time.
With `coalesce=True` the rows that are asked for while a call is under way go out together as
the next one: nobody waits for a timer, and nobody has to collect them.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from khot_client import AsyncClient

N, K = 784, 50


async def sample_all(
    address: str | None, scores: NDArray[np.float32], tasks: int, coalesce: bool = True
) -> tuple[NDArray[np.bool_], float]:
    """Return a mask for each row of scores, and how many rows a second that were."""
    masks = np.zeros(scores.shape, np.bool_)
    left: Iterator[int] = iter(range(len(scores)))  # shared: each task takes the next row

    async def handle(client: AsyncClient) -> None:
        for index in left:
            drawn = await client.sample(scores[index], K, seed=index)
            masks[index] = drawn.z

    async with AsyncClient(address, coalesce=coalesce) as client:
        await client.sample(scores[0], K)  # connects
        start = time.perf_counter()
        await asyncio.gather(*(handle(client) for _ in range(tasks)))
        return masks, len(scores) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="host:port; default $KHOT_ADDRESS, or this machine")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=64)
    given = parser.parse_args()

    scores = np.random.default_rng(0).standard_normal((given.rows, N), np.float32)
    masks, rate = asyncio.run(sample_all(given.address, scores, given.tasks))
    chosen = set(masks.sum(-1).tolist())
    print(f"{given.rows} rows of {N}, {given.tasks} tasks: {rate:.0f} rows/s")
    print(f"units chosen of each: {', '.join(map(str, chosen))}")
    print(f"mean score of all {scores.mean():+.2f}, of those chosen {scores[masks].mean():+.2f}")


if __name__ == "__main__":
    main()
