"""Pictures with matplotlib, which is loaded only when one is drawn."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from khot_client.errors import BadSettings

BLUE, GREY, RED = "#0969da", "#6e7781", "#cf222e"
# Of lines that must be told apart, also by those who see fewer colours (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000")
WIDTH, HEIGHT, DPI = 5.2, 4.0, 120  # inches of a panel

Axis: TypeAlias = Any  # of matplotlib, which need not be installed


@contextmanager
def panels(path: Path, count: int) -> Iterator[Sequence[Axis]]:
    """Axes to draw on, side by side; the picture is there once the block has ended, or not at all.

    Raises:
        BadSettings: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadSettings(
            f"{path.name}: matplotlib must be installed to draw it; got none. "
            "Install it with: pip install 'khot[server]'"
        ) from None
    figure = Figure(figsize=(WIDTH * count, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    yield axes
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
    temporary = path.with_name(f".{path.name}.part")
    # no version and no date in it: the same CSV makes the same bytes
    figure.savefig(temporary, format="png", metadata={"Software": None})
    temporary.replace(path)
