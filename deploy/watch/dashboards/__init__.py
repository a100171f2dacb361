"""All dashboards, the first one first."""

from watch.dashboards import overview, resources, serving, solver, training

DASHBOARDS = tuple(page.DASHBOARD for page in (overview, serving, solver, training, resources))
