"""k times softmax, forward and backward, as a multiple of torch.softmax's.

One thread; the rows of `relaxation_cost`.
"""

import relaxation_cost

import khot

if __name__ == "__main__":
    relaxation_cost.main("softmax_topk", __doc__, {"softmax_topk": khot.softmax_topk})
