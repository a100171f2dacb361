"""Draw the main panels as a real Prometheus sees them: `python tests/deploy/draw_panels.py`.

A real server is under load for some minutes, with jobs; then the panels' own expressions are
asked for over that time and drawn, with the titles, units and lines of the dashboards.
"""

import argparse
import io
import itertools
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from prometheus import Prometheus
from scene import Scene, staged
from traffic import FLAGS, SMALL_VAE, Done, be_refused, serve

from khot_client import FeatureSelection, Vae
from khot_server.jobs.artifacts.pictures.drawing import DPI, GREY, INK, png, styled

ROOT = Path(__file__).parents[2]
STEP_S = 2.0
WINDOW = "12s"  # of rates
COLOURS = ("#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e", "#12a3b4", "#6e7781", "#d6409f")
Json = dict[str, Any]
# (file, how many side by side, what is in it)
PICTURES: tuple[tuple[str, int, dict[str, tuple[str, ...]]], ...] = (
    (
        "overview.png",
        3,
        {
            "khot-overview": (
                "Calls by code",
                "Duration of Relax and Sample",
                "Rows served, by operator",
            ),
            "khot-training": ("Loss of running jobs", "Examples trained"),
            "khot-resources": ("Memory, by process",),
        },
    ),
    (
        "solver.png",
        3,
        {
            "khot-solver": (
                "Iterations in serving",
                "Residuals in serving",
                "Share of rows that needed bisection",
            )
        },
    ),
)


def act(scene: Scene, seconds: float) -> None:
    """A load that swells and ebbs, refusals, and jobs of both kinds one after another."""
    done, stopped = Done(), threading.Event()
    trainer = threading.Thread(target=train, args=(scene, stopped))
    trainer.start()
    try:
        start = refused = time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            serve(scene.client, done)
            if now > refused + 20:
                be_refused(scene.server, scene.client, done)
                refused = now
            stopped.wait(0.1 + 0.7 * math.sin((now - start) / 20) ** 2)
    finally:
        stopped.set()
        trainer.join()


def train(scene: Scene, stopped: threading.Event) -> None:
    """Jobs one after another, the third of which fails, until it is to stop."""
    specs = (
        FeatureSelection(k=10, epochs=1000, patience=0, references=False),
        Vae(epochs=1200, patience=0, **SMALL_VAE),
        FeatureSelection(k=10, learning_rate=1e6, hidden=(8,) * 8),
    )
    for spec in itertools.cycle(specs):
        job = scene.client.submit(spec)
        while not (stopped.wait(0.5) or job.status().state.ended):
            pass
        if stopped.is_set():
            job.cancel()
            return


def panels(named: dict[str, tuple[str, ...]]) -> Iterator[Json]:
    """The panels of these dashboards and titles."""
    for uid, titles in named.items():
        page = json.loads((ROOT / f"deploy/grafana/dashboards/{uid}.json").read_text())
        by_title = {panel["title"]: panel for panel in page["panels"]}
        yield from (by_title[title] for title in titles)


def drawn(axes: Axes, panel: Json, prometheus: Prometheus, start: float) -> None:
    """Draw a panel, from `start` to now."""
    lines = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", WINDOW)
        for name in ("$instance", "$operator"):
            expression = expression.replace(name, ".*")
        for labels, values in prometheus.over(expression, start, time.time(), STEP_S):
            lines.append((legend(target["legendFormat"], labels), labels, values))
    axes.set_title(panel["title"])
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: in_words(value, unit)))
    axes.set_xlabel("minutes")
    if panel["type"] == "heatmap":
        heat(axes, [(labels["le"], values) for _, labels, values in lines], start, unit)
        return
    look = panel["fieldConfig"]["defaults"]["custom"]
    stacked = look["stacking"]["mode"] == "normal"
    times = sorted({at for _, _, values in lines for at, _ in values})
    below: dict[float, float] = {}
    for (name, _, values), colour in zip(lines, COLOURS * 4, strict=False):
        known = dict(values)
        x = [(at - start) / 60 for at in times]
        y = [known.get(at, math.nan) for at in times]  # a line has gaps where there is nothing
        if stacked:
            base = [below.get(at, 0.0) for at in times]
            y = [value + under for value, under in zip(y, base, strict=True)]
            below |= {at: v for at, v in zip(times, y, strict=True) if not math.isnan(v)}
            axes.fill_between(x, base, y, color=colour, alpha=0.3, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=1.3, label=name)
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]:
        axes.axhline(step["value"], color="#cf222e", linestyle="--", linewidth=1)
    if look["scaleDistribution"]["type"] == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: in_words(value, unit)))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlim(0, (time.time() - start) / 60)
    below_axes = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 3}
    axes.legend(fontsize=7, handlelength=1.2, columnspacing=1.2, **below_axes)


def heat(axes: Axes, buckets: list[tuple[str, Any]], start: float, unit: str) -> None:
    """Draw how much went into each bucket; those of Prometheus count all below as well."""
    buckets.sort(key=lambda bucket: float(bucket[0]))
    counts = [dict(values) for _, values in buckets]
    times = sorted(set().union(*counts))
    rows, names = [], []
    below = dict.fromkeys(times, 0.0)
    for (bound, _), row in zip(buckets, counts, strict=True):
        here = [max(0.0, row.get(at, 0.0) - below[at]) for at in times]
        below = {at: row.get(at, 0.0) for at in times}
        if sum(here) > 0.5:
            rows.append(here)
            names.append("above" if bound == "+Inf" else in_words(float(bound), unit))
    extent = (0.0, (times[-1] - start) / 60, -0.5, len(rows) - 0.5)
    axes.imshow(
        [[math.sqrt(value) for value in row] for row in rows],
        **{"aspect": "auto", "origin": "lower", "extent": extent, "cmap": "Blues"},
        interpolation="nearest",
    )
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)


def legend(form: str, labels: dict[str, str]) -> str:
    """The name of a line."""
    for name, value in labels.items():
        shown = value[:8] if name == "job_id" else value
        form = form.replace(f"{{{{{name}}}}}", shown)
    return form


def in_words(value: float, unit: str) -> str:
    """A value as Grafana would write it."""
    if unit == "sci":
        return f"{value:.0e}"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    suffix = {"s": " s", "reqps": " req/s", "bytes": "B"}.get(unit, unit.partition("si:")[2])
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}{suffix.strip()}"
    return f"{value:.3g} {suffix.strip()}".strip()


def picture(prometheus: Prometheus, across: int, chosen: list[Json], start: float) -> bytes:
    """Panels side by side, as a PNG."""
    down = -(-len(chosen) // across)
    with styled():
        figure = Figure(figsize=(4.2 * across, 3.0 * down), dpi=DPI, layout="constrained")
        for axes, panel in zip(figure.subplots(down, across).flat, chosen, strict=True):
            axes.tick_params(labelsize=8, colors=GREY)
            axes.title.set_color(INK)
            drawn(axes, panel, prometheus, start)
        return small(png(figure))


def small(picture: bytes) -> bytes:
    """The same with few colours, in a third of the bytes; those of thin lines stay."""
    packed, all_colours = io.BytesIO(), Image.open(io.BytesIO(picture)).convert("RGB")
    few = all_colours.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="how long to load the server")
    parser.add_argument("--out", type=Path, default=ROOT / "deploy/pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder), *FLAGS) as scene:
        start = time.time()
        act(scene, arguments.seconds)
        scene.prometheus.wait_until_scraped(time.time())
        for name, across, named in PICTURES:
            made = picture(scene.prometheus, across, list(panels(named)), start)
            (arguments.out / name).write_bytes(made)
            print(f"{name}: {len(made)} bytes")


if __name__ == "__main__":
    main()
