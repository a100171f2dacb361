"""What Prometheus and Grafana are told of the service, in one place.

Dashboards, recording rules, alerts and the runbook are tables here; `python deploy/generate.py`
writes the files that are checked in.
"""
