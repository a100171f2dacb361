"""A panel as a plain value, and as the JSON that Grafana reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"

Kind = Literal["stat", "timeseries", "heatmap", "bargauge", "table"]
Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """An expression, and what its lines are called: `{{label}}` stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: what is shown, and nothing else.
        unit: of the values, in Grafana's words; of a heatmap, of its buckets.
        description: what it means, and what to make of it.
        queries: what is drawn.
        kind: how.
        width, height: in cells of Grafana's grid.
        steps: (from this value on, colour).
        base: the colour below the first of them.
        most: of the axis, which begins at 0; None: as the data are.
        words: what to write instead of a value.
        stacked: whether lines add up.
        log: whether the axis is logarithmic.
        more: uid of the dashboard that says more.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float, str], ...] = ()
    base: str = GREEN
    most: float | None = None
    words: Mapping[str, tuple[str, str]] | None = None
    stacked: bool = False
    log: bool = False
    more: str = ""

    def json(self, number: int, x: int, y: int) -> Json:
        """Return it as Grafana reads it, at this place."""
        shown: Json = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "datasource": SOURCE,
            "targets": [
                self._target(query, letter)
                for query, letter in zip(self.queries, "ABCDEFGH", strict=False)
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
        }
        if self.more:
            here = "${__url_time_range}&${__all_variables}"
            shown["links"] = [{"title": "More", "url": f"{path(self.more)}?{here}"}]
        if self.kind == "table":
            hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
            shown["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
        return shown

    def _target(self, query: Query, letter: str) -> Json:
        now = self.kind in ("bargauge", "stat", "table")
        formats = {"heatmap": "heatmap", "table": "table"}
        return {
            "refId": letter,
            "datasource": SOURCE,
            "expr": query.expr,
            # a bucket is named by its bound
            "legendFormat": "{{le}}" if self.kind == "heatmap" else query.legend or "__auto",
            "format": formats.get(self.kind, "time_series"),
            "instant": now,
            "range": not now,
        }

    def _defaults(self) -> Json:
        steps: list[Json] = [{"color": self.base, "value": None}]
        steps += [{"color": colour, "value": value} for value, colour in self.steps]
        defaults: Json = {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "color": {"mode": "thresholds" if self.steps or self.words else "palette-classic"},
        }
        if self.kind == "timeseries":
            defaults["color"] = {"mode": "palette-classic"}
            defaults["custom"] = {
                "lineWidth": 1,
                "fillOpacity": 30 if self.stacked else 8,
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
                "showPoints": "never",
                "thresholdsStyle": {"mode": "dashed" if self.steps else "off"},
                "scaleDistribution": {"type": "log", "log": 10} if self.log else {"type": "linear"},
            }
        if self.kind == "stat" and not (self.steps or self.words):
            defaults["color"] = {"mode": "fixed", "fixedColor": self.base}
        if not self.log:
            defaults["min"] = 0
        if self.most is not None:
            defaults["max"] = self.most
        if self.words is not None:
            options = {
                value: {"text": text, "color": colour}
                for value, (text, colour) in self.words.items()
            }
            defaults["mappings"] = [{"type": "value", "options": options}]
        return defaults

    def _options(self) -> Json:
        last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        match self.kind:
            case "stat":
                return {
                    "reduceOptions": last,
                    "colorMode": "background" if self.steps or self.words else "value",
                    "graphMode": "none",
                    "textMode": "auto",
                }
            case "bargauge":
                return {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"}
            case "heatmap":
                return {
                    "calculate": False,
                    "yAxis": {"unit": self.unit},
                    "color": {"mode": "scheme", "scheme": "Blues", "exponent": 0.5},
                    "cellGap": 1,
                    "legend": {"show": True},
                }
            case "table":
                return {"showHeader": True}
            case _:
                return {
                    "legend": {
                        "displayMode": "table",
                        "placement": "bottom",
                        "calcs": ["lastNotNull", "max"],
                    },
                    "tooltip": {"mode": "multi", "sort": "desc"},
                }


def path(uid: str) -> str:
    """Return where Grafana serves the dashboard."""
    return f"/d/{uid}"
