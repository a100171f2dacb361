"""What goes wrong under a command is one line with what to do, and an exit code of the table."""

import datetime
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import trustme
from commands import run
from faults import full, small_disk
from processes import Server

import khot_client
from khot_client.cli import faults
from khot_server.api.identity import new_token

KHOT = str(Path(sys.executable).with_name("khot"))
YESTERDAY = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
LONG = ("submit", "feature-selection", "--epochs", "10000", "--patience", "0", "--no-references")


def began(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [KHOT, *arguments], env=os.environ | environment, text=True, start_new_session=True, **pipes
    )


def one_line(err: str) -> str:
    assert err.startswith("khot: ") and err.count("\n") == 1, err
    return err


@contextmanager
def strange(credentials: grpc.ServerCredentials | None = None):
    """A server that knows no method, as one of another version."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("localhost:0", credentials)
        server.start()
        try:
            yield f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize("error", sorted(faults.EXIT_CODES, key=str), ids=lambda e: e.__name__)
def test_every_error_has_its_exit_code(monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error("it: must be so; got another")

    monkeypatch.setattr(khot_client.Client, "jobs", fail)
    code, out, err = run("jobs")
    assert code == faults.EXIT_CODES[error] and out == ""
    assert "it: must be so; got another" in one_line(err)
    assert "tls=" not in err and "timeout_s" not in err, "advice for a shell"


def test_any_other_error_is_one_line_too(monkeypatch):
    for error in (khot_client.ServerError("x: y"), OSError(28, "No space left on device")):
        monkeypatch.setattr(
            khot_client.Client, "jobs", lambda *_, e=error, **__: (_ for _ in ()).throw(e)
        )
        code, _, err = run("jobs")
        assert code == 1
        one_line(err)


def test_another_version_is_told():
    with strange() as address:
        for command in ("status", "operators", "jobs"):
            code, _, err = run(command, "--address", address)
            assert code == 1 and "Install the same version" in one_line(err)


def test_an_expired_certificate_is_one_line_without_those_of_grpc(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    leaf = authority.issue_cert("localhost", not_after=YESTERDAY)
    pair = (leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes())
    with (
        strange(grpc.ssl_server_credentials([pair])) as address,
        began("status", "--address", address, "--ca", str(tmp_path / "ca.pem")) as process,
    ):
        out, err = process.communicate(timeout=60)
    assert process.returncode == 6 and out == ""
    assert "certificate has expired. Check --tls and --ca" in one_line(err)


def test_a_server_that_does_not_serve_is_told(monkeypatch):
    def check(_: bytes, __: object) -> bytes:
        return b"\x08\x02"

    handler = grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        code, out, err = run("status", "--address", f"127.0.0.1:{port}")
        server.stop(None).wait()
    assert (code, err) == (1, "") and "health\tnot serving\n" in out


def test_a_silent_server_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = run("operators", "--address", address, "--timeout", "0.3")
    assert code == 5 and "--timeout" in one_line(err)


def test_a_wrong_token_and_a_server_that_dies_mid_watch(tmp_path, monkeypatch):
    """One server with tokens for both: it takes seconds to start."""
    token, entry = new_token("vision", ["sample", "jobs"])
    (tmp_path / "tokens.toml").write_text(entry)
    running = Server(tmp_path / "state", "--tokens", str(tmp_path / "tokens.toml"))
    try:
        address = running.wait_until_serving().address
        code, _, err = run("jobs", "--address", address, "--token", "khot_wrong")
        assert code == 6 and "khot token new" in one_line(err) and "khot_wrong" not in err

        monkeypatch.setattr(khot_client.Job.watch, "__kwdefaults__", {"reconnect_s": 0.5})
        lost = threading.Thread(target=_end_once_it_runs, args=(running, token))
        lost.start()
        code, out, err = run(*LONG, "--watch", "--address", address, KHOT_TOKEN=token)
        lost.join()
        assert code == 5
        back = f"Watch it again with: khot job watch {out.split()[0]} --address {address}"
        assert back in one_line(err)
    finally:
        running.end()


def _end_once_it_runs(running: Server, token: str) -> None:
    with khot_client.Client(running.address, token=token) as client:
        while not any(job.progress for job in client.jobs(states=["running"])):
            time.sleep(0.1)
    running.process.kill()


def test_a_full_disk_is_told_and_nothing_looks_complete(client, server, tmp_path):
    job = client.submit(khot_client.FeatureSelection(k=5, epochs=1, references=False))
    job.wait()
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        with full(disk):
            code, _, err = run("job", "download", job.id, "--to", str(disk), "--address", server)
        assert code == 1 and "Free some space" in one_line(err)
        assert all(path.suffix == ".part" for path in disk.iterdir())


def test_output_that_cannot_be_written_is_told(server):
    with Path("/dev/full").open("w") as nowhere:
        done = subprocess.run(
            [KHOT, "operators", "--address", server],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1 and "No space left" in one_line(done.stderr)


def test_a_reader_that_has_read_enough_is_no_error(server):
    shell = f"{KHOT} operators --address {server} --json | head -c 5"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert (len(done.stdout), done.stderr) == (5, "")


def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(server):
    with began(*LONG, "--watch", KHOT_ADDRESS=server) as process:
        job_id = process.stdout.readline().strip()
        assert process.stdout.readline() == "queued\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    back = f"detached, and it goes on. Watch it again with: khot job watch {job_id}"
    assert f"{back} --address {server}\n" in one_line(err)
    with khot_client.Client(server) as client:
        assert not client.job(job_id).status().state.ended
        client.job(job_id).cancel()


@pytest.mark.parametrize("command", [("job", "logs", "JOB", "--follow"), ("operators",)], ids=str)
def test_ctrl_c_anywhere_else_is_one_line(server, command):
    with khot_client.Client(server) as client, socket.create_server(("127.0.0.1", 0)) as silent:
        job = client.submit(khot_client.FeatureSelection(k=5, epochs=10_000, patience=0))
        address = server if command[0] == "job" else f"127.0.0.1:{silent.getsockname()[1]}"
        said = [word.replace("JOB", job.id) for word in command]
        with began(*said, "--address", address) as process:
            if command[0] == "job":
                process.stdout.readline()  # it follows
            else:
                silent.accept()[0].close()  # it calls
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        job.cancel()
    said = (
        "detached, and it goes on. Watch"
        if command[0] == "job"
        else "stopped by Ctrl-C. Run it again; "
    )
    assert process.returncode == 130 and one_line(err).startswith(f"khot: {said}")


def test_a_fault_of_ours_is_one_line_too_and_debug_shows_it():
    code = """
import sys
from khot_client import Client
from khot_client.__main__ import main
Client.jobs = lambda *_, **__: {}[3]
sys.argv = ["khot", *sys.argv[1:]]
main()
"""
    for more in ([], ["--debug"]):
        command = [sys.executable, "-c", code, "jobs", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        if more:
            assert "Traceback" in done.stderr
        else:
            assert "got KeyError: 3. Run it again with --debug" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [("relax -k 1 <&-", 1, "input; got none\n"), ("relax -k 1 --n 2 >&-", 0, "")],
)
def test_closed_input_and_output_are_no_fault(server, words, code, said):
    command = f"{sys.executable} -m khot_client {words}"
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"KHOT_ADDRESS": server},
    )
    assert done.returncode == code and done.stderr.endswith(said) and "Trace" not in done.stderr


def test_a_server_that_is_starting_is_told_from_none(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        message = "engine: must have said hello; got none yet"
        raise khot_client.Unavailable(message, code="UNAVAILABLE", retry_after_s=1.0)

    monkeypatch.setattr(khot_client.Client, "jobs", fail)
    code, _, err = run("jobs")
    assert code == 5 and one_line(err).endswith("got none yet. Call again in 1 s.\n")


def test_ctrl_c_while_the_command_loads_is_one_line_too():
    code = """
import sys

class Stopped:
    def find_spec(self, name, *_):
        if name == "grpc":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stopped())
from khot_client.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert (
        one_line(done.stderr) == "khot: stopped by Ctrl-C, before it did anything. Run it again\n"
    )
