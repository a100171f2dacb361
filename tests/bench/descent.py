"""Draw the losses of many problems as they are solved, as an SVG: a band and its mean for each."""

from collections.abc import Iterator, Mapping

from torch import Tensor

COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
INK, GREY, PALE = "#24292f", "#6e7781", "#eaeef2"
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 620, 260, 70, 64, 100


def svg(histories: Mapping[str, Tensor], every: int, optimum: float, standstill: float) -> str:
    """The picture: losses (steps / every + 1, problems) by estimator, and two levels to reach."""
    steps = every * (max(len(history) for history in histories.values()) - 1)
    most = max(float(history.max()) for history in histories.values())
    plot = Plot(steps, optimum - 0.1 * (most - optimum), most + 0.05 * (most - optimum))
    width, height = LEFT + WIDTH + RIGHT, TOP + HEIGHT + 52
    problems = next(iter(histories.values())).shape[1]
    title = f"polynomial programming: E|z - c|² / n of {problems} problems"
    lines = (
        line
        for colour, (name, history) in zip(COLOURS, histories.items(), strict=False)
        for line in plot.curve(name, colour, history, every)
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="ui-monospace, monospace" font-size="12">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
            f'<text x="{LEFT}" y="30" fill="{INK}" font-weight="bold">{title}</text>',
            *plot.axis(),
            *plot.level(optimum, "optimum"),
            *plot.level(standstill, "pi = c"),
            *lines,
            "</svg>\n",
        )
    )


class Plot:
    """Where a step and a loss are."""

    def __init__(self, steps: int, least: float, most: float) -> None:
        self.steps, self.least, self.most = steps, least, most

    def x(self, step: float) -> float:
        return LEFT + WIDTH * step / self.steps

    def y(self, loss: float) -> float:
        return TOP + HEIGHT * (self.most - loss) / (self.most - self.least)

    def axis(self) -> Iterator[str]:
        bottom = TOP + HEIGHT
        yield (
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{bottom}" y2="{bottom}" stroke="{GREY}"/>'
        )
        for part in range(6):
            step = self.steps * part / 5
            yield (
                f'<text x="{self.x(step):.1f}" y="{bottom + 18}" fill="{GREY}" font-size="10" '
                f'text-anchor="middle">{step:g}</text>'
            )
        yield (
            f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 36}" fill="{GREY}" font-size="10" '
            'text-anchor="middle">step</text>'
        )

    def level(self, loss: float, name: str) -> Iterator[str]:
        at = self.y(loss)
        yield (
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GREY}" '
            'stroke-dasharray="4 3"/>'
        )
        yield (
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" fill="{GREY}" font-size="10" '
            f'text-anchor="end">{loss:.4f}</text>'
        )
        yield (
            f'<text x="{LEFT + WIDTH - 6}" y="{at + 14:.1f}" fill="{GREY}" font-size="10" '
            f'text-anchor="end">{name}</text>'
        )

    def curve(self, name: str, colour: str, history: Tensor, every: int) -> Iterator[str]:
        """The mean over the problems, and a band from the best to the worst."""
        steps = [every * i for i in range(len(history))]

        def points(losses: Tensor) -> list[str]:
            return [
                f"{self.x(step):.1f},{self.y(loss):.1f}"
                for step, loss in zip(steps, losses.tolist(), strict=True)
            ]

        band = points(history.amax(1)) + points(history.amin(1))[::-1]
        yield f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.2"/>'
        line = " ".join(points(history.mean(1)))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        at = self.y(float(history[-1].mean()))
        yield (
            f'<text x="{LEFT + WIDTH + 8}" y="{at - 4:.1f}" fill="{colour}" font-size="11">'
            f"{name}</text>"
        )
