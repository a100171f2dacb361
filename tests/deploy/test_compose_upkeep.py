"""Back-up, restore, upgrade, tokens and TLS: the commands of deploy/README.md, as they stand."""

import re
import urllib.error
import urllib.request

import pytest
import trustme
from compose import ROOT, Stack
from engine import HealthRounds

from khot_client import Client, FeatureSelection, Unauthenticated
from khot_server.api.identity import new_token

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

QUICK = FeatureSelection("digits", k=10, epochs=2, references=False)
PAGE = (ROOT / "deploy/README.md").read_text()


def commands(heading: str) -> list[str]:
    """The lines of the first example below a heading."""
    below = PAGE.partition(f"\n### {heading}\n")[2]
    block = re.search(r"^```sh\n(.*?)^```", below, re.MULTILINE | re.DOTALL)[1]
    return block.replace("\\\n", " ").splitlines()


def test_a_back_up_is_restored(stack, tmp_path):
    with stack.client() as client:
        job = client.submit(QUICK, labels={"for": "back-up"})
        found = job.wait(timeout_s=120)
        files = {file.name: file.sha256 for file in job.artifacts()}
    for line in commands("Back-up"):
        stack.shell(line, cwd=tmp_path)
    stack.wait_healthy("server")
    with stack.client() as client:
        later = client.submit(QUICK, labels={"for": "later"}).id
        client.job(later).wait(timeout_s=120)
    stack("down", "--volumes")
    for line in commands("Restore"):
        stack.shell(line, cwd=tmp_path)
    stack.up()
    with stack.client() as client:
        assert [one.id for one in client.jobs()] == [job.id], "what came later is gone"
        assert client.job(job.id).result().features.tolist() == found.features.tolist()
        client.job(job.id).download(tmp_path / "files")
        assert {path.name for path in (tmp_path / "files").iterdir()} == files.keys()
        assert client.submit(QUICK).wait(timeout_s=120).features.size == 10


# What a version of khot with the first tables has left behind, with a job of each kind of end.
OLD = '''
import sqlite3
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
path = "/var/lib/khot/jobs.sqlite3"
engine = create_engine("sqlite:///" + path)
with engine.begin() as connection:
    config = Config()
    config.set_main_option("script_location", "khot_server.jobs:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")
engine.dispose()
spec = '{"feature_selection":{"dataset":"digits","epochs":3,"k":10,"seed":0}}'
result = (
    '{"feature_selection":{"feature_shape":[8,8],"features":[1,2],"scores":[0.5],'
    '"test_accuracy":0.9,"test_loss":0.25}}'
)
insert = """INSERT INTO jobs (id, tenant, request_id, spec, state, failure_message, result,
    attempts, lost_attempts, last_sequence, create_time, update_time)
    VALUES (?, 'local', ?, ?, ?, '', ?, 0, 0, 0, unixepoch(), unixepoch())"""
with sqlite3.connect(path) as connection:
    connection.execute(insert, ("0" * 31 + "1", "done", spec, "SUCCEEDED", result))
    connection.execute(insert, ("0" * 31 + "2", "waits", spec, "QUEUED", None))
'''
REVISION = "import sqlite3; print(*sqlite3.connect('/var/lib/khot/jobs.sqlite3')"
REVISION += ".execute('SELECT version_num FROM alembic_version').fetchone())"


def test_an_upgrade_brings_the_tables_along(stack):
    stack("down", "--volumes")
    python = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "python", "server", "-c")
    stack(*python, OLD)
    assert stack(*python, REVISION).split()[-1] == "0001"
    pull, *rest = commands("Upgrade")
    assert pull == "git pull"
    for line in rest:
        stack.shell(line)
    stack.up()
    assert stack.run("server", "python", "-c", REVISION).strip() == "0002"
    with stack.client() as client:
        assert client.job("0" * 31 + "1").result().test == {"loss": 0.25, "accuracy": 0.9}
        assert client.job("0" * 31 + "2").wait(timeout_s=120).features.size == 10


def test_a_state_of_a_later_version_is_refused_in_words(engine, stack):
    later = "import sqlite3; c = sqlite3.connect('/var/lib/khot/jobs.sqlite3'); "
    later += "c.execute(\"UPDATE alembic_version SET version_num = '9999'\"); c.commit()"
    stack("stop", "server")
    stack("run", "--rm", "--no-deps", "-T", "--entrypoint", "python", "server", "-c", later)
    container = engine.client.containers.run(
        "khot-server:test",
        environment={"KHOT_ANONYMOUS": "true"},
        volumes={f"{stack.project}_state": {"bind": "/var/lib/khot", "mode": "rw"}},
        detach=True,
    )
    try:
        assert container.wait(timeout=120)["StatusCode"] == 1
        said = container.logs().decode()
        assert "job store: database must be of this version of khot or an older one" in said
        assert "Traceback" not in said
    finally:
        container.remove(force=True)


@pytest.fixture
def guarded(engine, tmp_path):
    """The stack with secure.yml, its secrets, and a token."""
    authority, folder = trustme.CA(), tmp_path / "secrets"
    folder.mkdir()
    issued = authority.issue_cert("127.0.0.1", "server")
    token, entry = new_token("vision", ("sample", "jobs"))
    (folder / "tokens.toml").write_text(entry)
    (folder / "grafana-password").write_text("a password")
    issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    issued.private_key_pem.write_to_path(folder / "tls.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    # readable by the users of the containers, and by nobody else who could get here
    for path in folder.iterdir():
        path.chmod(0o444)
    files = ("deploy/docker/secure.yml", "tests/deploy/any-port.yml")
    stack = Stack(engine, "khot-guarded", *files, KHOT_SECRETS=str(folder))
    with HealthRounds(engine, stack.project):
        try:
            stack.up()
            yield stack, token, tmp_path / "ca.pem"
        finally:
            stack.end()


def test_the_override_asks_for_tokens_and_speaks_tls(stack, guarded):
    stack, token, ca = guarded
    with Client(stack.address, token=token, tls=ca) as client:
        job = client.submit(QUICK)
        assert job.wait(timeout_s=120).features.size == 10
    with Client(stack.address, tls=ca) as client, pytest.raises(Unauthenticated, match="bearer"):
        list(client.jobs())
    at = stack.port("server", 9551)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://{at}/", timeout=30)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        stack.get("grafana", 3000, "/api/search")
    environment = stack.container("server").attrs["Config"]["Env"]
    assert not any(token in line or "BEGIN" in line for line in environment)
