"""Dashboards as plain values, and as the JSON that Grafana reads."""

from dataclasses import dataclass

from watch.panel import RED, SOURCE, Json, Panel, path

WIDTH = 24  # columns of Grafana's grid
TAG = "khot"


@dataclass(frozen=True)
class Row:
    """Panels side by side, under a heading; what does not fit goes below."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A page of Grafana.

    Attributes:
        uid: its name in URLs and of its file.
        operators: whether it has a variable for the operator beside that for the instance.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    operators: bool = False

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them; the first has id 1."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def panel_path(self, title: str) -> str:
        """Return the path of the panel with this title.

        Raises:
            ValueError: there is none.
        """
        titles = [panel.title for panel in self.panels]
        if title not in titles:
            raise ValueError(f"panel of {self.uid}: must be one of {titles}; got {title!r}")
        return f"{path(self.uid)}?viewPanel={titles.index(title) + 1}"

    def json(self) -> Json:
        """Return it as Grafana reads it."""
        variables = [_INSTANCES, _OPERATORS] if self.operators else [_INSTANCES]
        return {
            "uid": self.uid,
            "title": f"khot / {self.title}",
            "description": self.description,
            "tags": [TAG],
            "schemaVersion": 39,
            "editable": False,
            "graphTooltip": 1,  # one cross-hair over all panels
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "links": [_LINKS],
            "templating": {"list": [_SOURCES, *variables]},
            "annotations": {"list": [_ALERTS]},
            "panels": self._placed(),
        }

    def _placed(self) -> list[Json]:
        placed: list[Json] = []
        number, y = 1, 0
        for place, row in enumerate(self.rows):
            heading = {"x": 0, "y": y, "w": WIDTH, "h": 1}
            placed.append(
                {
                    "id": 1000 + place,
                    "type": "row",
                    "title": row.title,
                    "collapsed": False,
                    "gridPos": heading,
                    "panels": [],
                }
            )
            x, y, tallest = 0, y + 1, 0
            for panel in row.panels:
                if x + panel.width > WIDTH:
                    x, y, tallest = 0, y + tallest, 0
                placed.append(panel.json(number, x, y))
                number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
            y += tallest
        return placed


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


_SOURCES: Json = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "current": {"text": "khot", "value": "khot"},
}
_INSTANCES = _variable("instance", "Server", "label_values(khot_build_info, instance)")
_OPERATORS = _variable("operator", "Operator", "label_values(khot_rows_total, operator)")
_LINKS: Json = {
    "type": "dashboards",
    "title": "khot",
    "tags": [TAG],
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
}
_ALERTS: Json = {
    "name": "Alerts",
    "enable": True,
    "iconColor": RED,
    "datasource": SOURCE,
    "expr": 'ALERTS{alertstate="firing", alertname=~"Khot.+"}',
    "titleFormat": "{{alertname}}",
}
