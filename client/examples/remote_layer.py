"""Train a model whose k-hot layer is on the server, and the same model all here.

    khot up &
    python client/examples/remote_layer.py

The model sees, of each example, 3 of 16 columns: a draw of the layer, by scores that learn
with the rest. With the same seeds the two loss curves are the same numbers, to the last bit. That
is in float64; in float32 the gradients may differ in their last bits.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import khot
from khot_client.torch import RemoteKHot, draw_seed

N, K = 16, 3
TRUE = [2, 5, 11]


class Selector(nn.Module):
    """A network that sees K of N columns."""

    def __init__(self, layer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.scores = nn.Parameter(torch.zeros(N))
        self.network = nn.Sequential(nn.Linear(N, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        mask = self.layer(self.scores.expand(len(x), N))
        out: Tensor = self.network(x * mask)
        return out.squeeze(-1)


def here(scores: Tensor) -> Tensor:
    """What the remote layer does, by the library: rows have their seeds from one."""
    return khot.pi_st(scores, K, seeds=khot.row_seeds(draw_seed(), len(scores)))


def train(layer: Callable[[Tensor], Tensor], epochs: int) -> tuple[list[float], list[int]]:
    """The loss of each epoch, and the columns of the greatest scores at the end."""
    torch.manual_seed(0)
    x = torch.randn(512, N, dtype=torch.float64)
    y = x[:, TRUE].sum(-1)
    model = Selector(layer).double()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch) / len(x)
        losses.append(total)
    return losses, sorted(model.scores.topk(K).indices.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="host:port; default $KHOT_ADDRESS, or this machine")
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()

    remote, columns = train(RemoteKHot(given.address, "pi_st", K), given.epochs)
    local, _ = train(here, given.epochs)
    print("epoch  loss, server  loss, here")
    for epoch in range(0, given.epochs, max(1, given.epochs // 5)):
        print(f"{epoch:5}  {remote[epoch]:12.6f}  {local[epoch]:10.6f}")
    print("equal" if remote == local else "NOT equal")
    print(f"columns found {columns}, true {TRUE}")


if __name__ == "__main__":
    main()
