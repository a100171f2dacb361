"""report.html: what was asked for and what came of it, in one file that needs no other.

It has no scripts and no links to elsewhere, and says so to the browser (`CSP`). Whatever comes
from users is escaped: names of columns and classes, the specification.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from khot_server.jobs.artifacts import words
from khot_server.jobs.artifacts.made import Made
from khot_server.jobs.results import FeatureSelectionResult, SparseRegressionResult

if TYPE_CHECKING:  # it would load matplotlib
    from khot_server.jobs.artifacts.pictures import Picture

CSP = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MOST_ROWS = 200  # of chosen columns; result.json has all
FOLDED = 20  # a longer table is shown when asked for


def report(made: Made, pictures: "Mapping[str, Picture]") -> bytes:
    """Return the contents of report.html."""
    title = escape(words.title(made))
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="headline">{escape(words.headline(made))}</p>',
        _equation(made),
        _warnings(made.result.warnings),
        _measurements(words.measurements(made)),
        f"<p>{escape(words.course(made))}</p>",
        *(_figure(name, picture) for name, picture in pictures.items()),
    ]
    if isinstance(made.result, FeatureSelectionResult | SparseRegressionResult):
        parts.append(_chosen(made.result))
    parts.append("<h2>Go on with it</h2>")
    parts += [
        f"<p>{escape(what)}:</p>\n<pre><code>{escape(code)}</code></pre>"
        for what, code in words.examples(made).items()
    ]
    parts += ["<h2>Configuration</h2>", _pairs(made.config)]
    parts += [
        "<h2>Where it comes from</h2>",
        _pairs({"job": made.job_id, **asdict(made.provenance)}),
    ]
    style = resources.files(__package__).joinpath("report.css").read_text()
    head = (
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{CSP}">',
        '<meta name="viewport" content="width=device-width">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}</title>",
        f"<style>\n{style}</style>",
    )
    opening = (
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        *head,
        "</head>",
        "<body>",
        "<main>",
    )
    closing = ("</main>", "</body>", "</html>", "")
    return "\n".join((*opening, *filter(None, parts), *closing)).encode()


def _equation(made: Made) -> str:
    if not isinstance(made.result, SparseRegressionResult):
        return ""
    return f"<pre><code>{escape(words.equation(made.result))}</code></pre>"


def _warnings(warnings: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _measurements(rows: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each thing measured, the first one in bold."""
    names = list(dict.fromkeys(name for measured in rows.values() for name in measured))
    head = "".join(f"<th>{escape(words.NAMES.get(name, name))}</th>" for name in names)
    lines = [f"<tr><th></th>{head}</tr>"]
    for what, measured in rows.items():
        cells = (words.number(measured[name]) if name in measured else "-" for name in names)
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(what)}</th>{numbers}</tr>')
    return _table("measurements", lines)


def _figure(name: str, picture: "Picture") -> str:
    data, caption = b64encode(picture.png).decode(), escape(picture.caption)
    image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption} ({escape(name)})</figcaption></figure>"


def _chosen(result: FeatureSelectionResult | SparseRegressionResult) -> str:
    """The chosen columns, with bars of their probabilities, and their coefficients if they have."""
    likely = '<th colspan="2">probability to be chosen</th>'
    found: tuple[float, ...] | None = getattr(result, "coefficients", None)
    times = "" if found is None else "<th>coefficient</th>"
    lines = [f"<tr><th>index</th><th>name</th>{times}{likely}</tr>"]
    chosen = enumerate(zip(result.features, result.names, strict=True))
    for place, (feature, name) in list(chosen)[:MOST_ROWS]:
        p = result.inclusion_probabilities[feature]
        bar = f'<div class="bar"><div style="width:{100 * p:.1f}%"></div></div>'
        number = f'<td class="number">{p:.3f}</td>'
        index = f'<td class="number">{feature}</td>'
        if found is not None:
            number = f'<td class="number">{words.number(found[place], 6)}</td>{number}'
        lines.append(f"<tr>{index}<td>{escape(name)}</td>{number}<td>{bar}</td></tr>")
    table = _table("chosen", lines)
    if (more := len(result.features) - MOST_ROWS) > 0:
        table += f"<p>And {more} more, in result.json.</p>"
    if len(result.features) > FOLDED:
        table = f"<details><summary>All of them</summary>{table}</details>"
    return f"<h2>The {len(result.features)} chosen columns</h2>\n{table}"


def _pairs(values: Mapping[str, Any]) -> str:
    return _table(
        "pairs", (f"<tr><th>{escape(k)}</th><td>{_value(v)}</td></tr>" for k, v in values.items())
    )


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return escape(value.isoformat(" ", "seconds"))
    if isinstance(value, (list, tuple)):
        return escape(", ".join(map(str, value)) or "none")
    return escape(str(value))


def _table(kind: str, lines: Iterable[str]) -> str:
    return f'<div class="wide"><table class="{kind}">\n' + "\n".join(lines) + "\n</table></div>"
