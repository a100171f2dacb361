"""`make demo`: learn which 10 of 64 pixels tell handwritten digits apart.

The mask is `khot.sigmoid_topk` of 64 learned scores, trained with a linear
classifier by plain gradient descent through the relaxation, while its temperature
falls until the mask is all but hard. The test uses the hard top 10.
"""

import torch
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.progress import track
from rich.text import Text
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy

import khot

K, PIXELS, CLASSES, STEPS, TEST = 10, 64, 10, 600, 500
SHADES = " ░▒▓█"


def main() -> None:
    torch.manual_seed(0)
    console = Console()
    native = khot.native_info()
    path = f"C kernels ({native.variant})" if native.in_use else f"torch ({native.reason})"
    console.print(f"khot {khot.__version__}, running on {path}\n")

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:TEST], order[TEST:]

    chosen, mask = learn_mask(console, images[train], labels[train])
    picked = accuracy(chosen, images[train], labels[train], images[test], labels[test])
    anywhere = torch.randperm(PIXELS)[:K]
    other = accuracy(anywhere, images[train], labels[train], images[test], labels[test])
    every = accuracy(torch.arange(PIXELS), images[train], labels[train], images[test], labels[test])

    console.print()
    hard = torch.zeros(PIXELS).index_fill(0, chosen, 1.0)
    pictures = (
        ("an average digit", images.mean(0)),
        (f"soft {K}-hot mask", mask),
        (f"the {K} chosen", hard),
    )
    console.print(Columns([Panel(draw(image), title=title) for title, image in pictures]))
    console.print(f"soft mask sums to {float(mask.double().sum()):.6f}")
    console.print(f"accuracy on {TEST} unseen digits, linear classifier:")
    console.print(f"  the {K} learned pixels  {picked:6.1%}")
    console.print(f"  {K} pixels at random    {other:6.1%}")
    console.print(f"  all {PIXELS} pixels         {every:6.1%}")


def learn_mask(console: Console, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of the K chosen pixels, and the soft mask at the end."""
    scores = torch.zeros(PIXELS, requires_grad=True)
    linear = torch.nn.Linear(PIXELS, CLASSES)
    groups = [{"params": [scores], "lr": 0.05}, {"params": linear.parameters(), "lr": 0.02}]
    optimizer = torch.optim.Adam(groups)
    for step in track(range(STEPS), "learning which pixels matter", console=console):
        tau = 0.03 ** (step / STEPS)
        mask = khot.sigmoid_topk(scores, K, tau=tau)
        loss = cross_entropy(linear(images * mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return scores.detach().topk(K).indices, mask.detach()


def accuracy(
    pixels: Tensor, train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor
) -> float:
    """Test accuracy of a linear classifier that sees these pixels only."""
    linear = torch.nn.Linear(len(pixels), CLASSES)
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        cross_entropy(linear(train[:, pixels]), train_labels).backward()
        optimizer.step()
    return float((linear(test[:, pixels]).argmax(-1) == test_labels).float().mean())


def draw(image: Tensor) -> Text:
    """An 8 x 8 picture of values in [0, 1], in blocks of grey."""
    shades = (image.reshape(8, 8) * len(SHADES)).long().clamp(0, len(SHADES) - 1)
    return Text("\n".join("".join(SHADES[shade] * 2 for shade in row) for row in shades.tolist()))


if __name__ == "__main__":
    main()
