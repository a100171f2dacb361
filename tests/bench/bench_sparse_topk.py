"""Sparse top-k, forward and backward, as a multiple of softmax's; and torch.sort, forward alone.

One thread; the rows of `relaxation_cost`.
"""

import harness
import relaxation_cost
import torch

import khot

MAPS = {"torch path": harness.on_torch(khot.sparse_topk)}
if khot.native_info().in_use:
    MAPS["kernel"] = khot.sparse_topk
    MAPS["kernel, p = 4/3"] = lambda x, k: khot.sparse_topk(x, k, p=4 / 3)
SIZES = (*relaxation_cost.SIZES, (4, 1_000_000, 100_000))

if __name__ == "__main__":
    relaxation_cost.main("sparse_topk", __doc__, MAPS, others={"sort": torch.sort}, sizes=SIZES)
