"""`docker compose up`: images built, stack started, and all of it as the pages say."""

import re
import urllib.error
import urllib.request

import pytest
from compose import ROOT
from processes import wait_until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

SERVICES = ("server", "prometheus", "grafana")
USERS = {"server": "10551", "prometheus": "65534", "grafana": "472"}
MOST_BYTES = {"server": 1.3e9, "client": 250e6}


@pytest.fixture(scope="module")
def client_image(engine) -> str:
    """The target `client`, built as by `docker build`."""
    tag = "khot-client:test"
    engine.client.images.build(
        path=str(ROOT), dockerfile="deploy/docker/Dockerfile", target="client", tag=tag, rm=True
    )
    return tag


def test_images_are_small(engine, stack, client_image, record_property):
    for name, image in {"server": "khot-server:test", "client": client_image}.items():
        size = engine.client.images.get(image).attrs["Size"]
        print(f"{name}: {size / 1e6:.0f} MB")
        record_property(f"{name}_bytes", size)
        assert size < MOST_BYTES[name], name


def test_every_service_is_healthy(stack):
    for service in SERVICES:
        assert stack.container(service).attrs["State"]["Health"]["Status"] == "healthy"


def test_everything_is_published_on_loopback_alone(stack):
    for service in SERVICES:
        ports = stack.container(service).attrs["NetworkSettings"]["Ports"]
        bound = [one["HostIp"] for found in ports.values() for one in found or ()]
        assert bound and set(bound) == {"127.0.0.1"}, service


@pytest.mark.parametrize("service", SERVICES)
def test_no_process_has_a_privilege(stack, service):
    """All of them, not only the first."""
    script = "for p in /proc/[0-9]*; do cat $p/status; done 2>/dev/null; true"
    seen = stack.run(service, "sh", "-c", script).splitlines()
    said = {}
    for line in seen:
        name, _, value = line.partition(":")
        said.setdefault(name, set()).add(" ".join(value.split()))
    assert {user for ids in said["Uid"] for user in ids.split()} == {USERS[service]}
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert {int(value, 16) for value in said[kind]} == {0}, kind
    assert said["NoNewPrivs"] == {"1"}
    assert stack.container(service).attrs["HostConfig"]["Privileged"] is False


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_can_be_written_but_what_is_meant_to_be(stack, service):
    for folder in ("/", "/etc", "/usr/bin", "/opt"):
        # told by its status: podman may lose the output of a command that ends at once
        refused = f"touch {folder}/new 2>&1 | grep -q 'Read-only file system'"
        status, _ = stack.container(service).exec_run(["sh", "-c", refused], user="0")
        assert status == 0, folder
    meant = {"server": "/var/lib/khot", "prometheus": "/prometheus", "grafana": "/var/lib/grafana"}
    stack.run(service, "touch", f"{meant[service]}/new")
    stack.run(service, "rm", f"{meant[service]}/new")


def test_limits_are_those_of_the_file(stack):
    for service, memory, cpus, pids in (
        ("server", 4 << 30, 2, 2048),
        ("prometheus", 1 << 30, 1, 512),
        ("grafana", 512 << 20, 1, 512),
    ):
        limits = stack.container(service).attrs["HostConfig"]
        cores = limits["NanoCpus"] / 1e9 or limits["CpuQuota"] / limits["CpuPeriod"]
        assert (limits["Memory"], cores, limits["PidsLimit"]) == (memory, cpus, pids), service


def test_kernels_are_those_in_c(stack):
    script = "import khot, torch; print(khot.native_info().in_use, torch.get_num_threads())"
    assert stack.run("server", "python", "-c", script).split() == ["True", "2"]


def test_a_job_submitted_from_outside_succeeds(stack):
    said = stack.khot("submit", "feature-selection", "--dataset", "digits", "-k", "10", "--watch")
    assert "10 of 64 features" in said
    with stack.client() as client:
        (job,) = client.jobs(limit=1)
        assert job.state == "SUCCEEDED"
        files = {file.name for file in client.job(job.id).artifacts()}
        assert {"report.html", "model.safetensors"} <= files


def test_the_client_image_calls_the_server(engine, stack, client_image):
    """From a container beside it, by the name of its service."""
    options = {
        "network": f"{stack.project}_default",
        "read_only": True,
        "cap_drop": ["ALL"],
        "environment": {"KHOT_ADDRESS": "server:50551"},
        "remove": True,
    }
    run = engine.client.containers.run
    said = run(client_image, ["sample", "-k", "2", "--", "2.0", "1.0", "0.0", "-1.0"], **options)
    masks = [float(word) for word in said.split()]
    assert sorted(masks) == [0, 0, 1, 1], said
    who = run(client_image, ["-c", "import os; print(os.getuid())"], entrypoint="python", **options)
    assert who.strip() == b"10551"
    lacks = "import importlib.util as u; print(u.find_spec('torch'))"
    assert run(client_image, ["-c", lacks], entrypoint="python", **options).strip() == b"None"


def test_the_status_page_is_for_this_machine(stack):
    url = f"http://{stack.port('server', 9551)}/"
    with urllib.request.urlopen(url, timeout=30) as page:
        text = page.read().decode()
    assert "tenant <bdi>local</bdi>" in text and "http://127.0.0.1:3000" in text
    evil = urllib.request.Request(url, headers={"Host": "rebound.evil.test"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(evil, timeout=30)


def query(stack, expression: str) -> list[dict]:
    answer = stack.get("prometheus", 9090, "/api/v1/query", query=expression)
    return answer["data"]["result"]


def test_prometheus_scrapes_the_server_and_knows_the_rules(stack):
    wait_until(lambda: query(stack, 'up{job="khot"} == 1'), "a scrape", 60)
    (target,) = query(stack, 'up{job="khot"}')
    assert target["metric"]["instance"] == "server"
    assert query(stack, "khot_engine_up")[0]["value"][1] == "1"
    groups = stack.get("prometheus", 9090, "/api/v1/rules")["data"]["groups"]
    loaded = {rule["name"] for group in groups for rule in group["rules"]}
    files = (ROOT / "deploy/prometheus/rules").glob("*.yml")
    text = "\n".join(file.read_text() for file in files)
    assert loaded == set(re.findall(r"- (?:alert|record): (\S+)", text))


def test_grafana_has_the_dashboards_and_their_data_without_a_click(stack):
    found = stack.get("grafana", 3000, "/api/search", type="dash-db")
    files = {path.stem for path in (ROOT / "deploy/grafana/dashboards").glob("*.json")}
    assert {board["uid"] for board in found} == files and len(files) == 5
    home = stack.get("grafana", 3000, "/api/dashboards/home")["dashboard"]
    assert home["uid"] == "khot-overview"
    through = "/api/datasources/proxy/uid/khot/api/v1/query"
    wait_until(lambda: query(stack, 'up{job="khot"} == 1'), "a scrape", 60)
    (up,) = stack.get("grafana", 3000, through, query='up{job="khot"}')["data"]["result"]
    assert up["value"][1] == "1"
