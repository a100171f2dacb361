"""`make proto-check` finds code that is not what the .proto files say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTO = Path(__file__).parents[2] / "proto"
pytest.importorskip("grpc_tools", reason="needs grpcio-tools, which has no wheel for this Python")


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "generate.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(PROTO, tmp_path / "proto")


def test_agreement_is_said(copy):
    done = check(copy)
    assert done.returncode == 0 and "agree" in done.stdout


def test_a_changed_message_is_found(copy):
    source = copy / "khot_proto/v1/tensor.proto"
    source.write_text(source.read_text().replace("bytes data = 3;", "bytes data = 4;"))
    done = check(copy)
    assert done.returncode != 0 and "run: make proto" in done.stderr
    assert "tensor_pb2.py" in done.stdout


def test_generated_code_without_its_source_is_found(copy):
    shutil.copy(copy / "khot_proto/v1/tensor_pb2.py", copy / "khot_proto/v1/old_pb2.py")
    assert check(copy).returncode != 0


def test_bytecode_beside_it_is_no_generated_code(copy):
    folder = copy / "khot_proto/v1/__pycache__"
    folder.mkdir(exist_ok=True)
    (folder / "tensor_pb2.cpython-311.pyc").write_bytes(b"\xa7\r\r\n\xff")
    assert check(copy).returncode == 0
