"""Rules of Prometheus as plain values, and as the YAML that it reads."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

HEAD = "# Written by `python deploy/generate.py` from deploy/watch; edit there.\n"


@dataclass(frozen=True)
class Record:
    """An expression that is computed once for all who ask: `level:metric:operation`."""

    name: str
    expr: str

    def yaml(self) -> str:
        """Return the rule."""
        return _rule({"record": self.name}, self.expr)


@dataclass(frozen=True)
class Alert:
    """What somebody must be told of.

    Attributes:
        expr: has a series for each thing that is not well.
        for_: how long it must last.
        severity: critical: at once, also at night; warning: in working hours.
        summary: what is wrong, with the values of `$labels` and `$value` put in.
        symptom: what users notice.
        action: what to do first.
        dashboard, panel: uid and title of what shows it.
    """

    name: str
    expr: str
    for_: str
    severity: Literal["critical", "warning"]
    summary: str
    symptom: str
    action: str
    dashboard: str
    panel: str

    @property
    def anchor(self) -> str:
        """Of its line in the runbook."""
        return self.name.lower()

    def annotations(self, panel_path: str) -> dict[str, str]:
        """Return what is sent along with it."""
        return {
            "summary": self.summary,
            "dashboard_url": panel_path,
            "runbook_url": f"deploy/README.md#{self.anchor}",
        }

    def yaml(self, panel_path: str) -> str:
        """Return the rule; its panel is at this path."""
        return _rule(
            {"alert": self.name},
            self.expr,
            f"for: {self.for_}",
            *_block("labels", {"severity": self.severity}),
            *_block("annotations", self.annotations(panel_path)),
        )


def file_of(groups: Mapping[str, Iterable[str]]) -> str:
    """Return a file of rules, by the names of their groups."""
    lines = ["groups:"]
    for name, rules in groups.items():
        lines += [f"  - name: {name}", "    rules:"]
        for rule in rules:
            first, *rest = rule.splitlines()
            lines += [f"      - {first}", *(f"        {line}" for line in rest)]
    return HEAD + "\n".join(lines) + "\n"


def _rule(name: Mapping[str, str], expr: str, *more: str) -> str:
    ((kind, called),) = name.items()
    shown = [f"  {line}" for line in expr.strip().splitlines()]
    return "\n".join((f"{kind}: {called}", "expr: |-", *shown, *more))


def _block(name: str, values: Mapping[str, str]) -> list[str]:
    # a string of JSON is one of YAML too
    return [f"{name}:", *(f"  {key}: {json.dumps(text)}" for key, text in values.items())]
