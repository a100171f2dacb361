"""Draw the picture of the README from real numbers: `python tests/pictures/draw.py`."""

from pathlib import Path

import torch

import khot

SCORES = (2.1, -0.6, 0.9, 3.2, 0.2, -1.4, 1.7, -0.1, 1.3, -2.2)
K = 3
TEMPERATURES = (0.1, 0.5, 2.0)
TARGET = Path(__file__).with_name("sigmoid_topk.svg")

PANEL, GAP, TOP, HEIGHT, BAR = 200, 24, 58, 120, 15
INK, GREY, BLUE = "#24292f", "#8c959f", "#0969da"


def svg() -> str:
    """The picture: the scores, then their soft 3-hot vector at three temperatures."""
    x = torch.tensor(SCORES, dtype=torch.float64)
    parts = [panel(0, "scores x", "any real numbers", scaled(x), GREY)]
    for place, tau in enumerate(TEMPERATURES, start=1):
        p = khot.sigmoid_topk(x, K, tau=tau)
        title = f"sigmoid_topk(x, {K}, tau={tau:g})"
        parts.append(panel(place, title, f"entries in [0, 1], sum {float(p.sum()):.4f}", p, BLUE))
    width, height = 4 * PANEL + 5 * GAP, TOP + HEIGHT + 30
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="ui-monospace, monospace" font-size="12">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
            *parts,
            "</svg>\n",
        )
    )


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Scores as heights in [0.05, 1]."""
    return 0.05 + 0.95 * (x - x.min()) / (x.max() - x.min())


def panel(place: int, title: str, caption: str, heights: torch.Tensor, colour: str) -> str:
    left = GAP + place * (PANEL + GAP)
    lines = [
        f'<text x="{left}" y="26" fill="{INK}" font-weight="bold">{title}</text>',
        f'<text x="{left}" y="44" fill="{GREY}" font-size="10">{caption}</text>',
        f'<line x1="{left}" x2="{left + PANEL}" y1="{TOP + HEIGHT}" y2="{TOP + HEIGHT}" '
        f'stroke="{GREY}"/>',
    ]
    for i, value in enumerate(heights.tolist()):
        tall, at = value * HEIGHT, left + 3 + i * 20
        lines.append(
            f'<rect x="{at}" y="{TOP + HEIGHT - tall:.1f}" width="{BAR}" height="{tall:.1f}" '
            f'fill="{colour}"/>'
        )
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(svg())
