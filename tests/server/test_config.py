"""Settings: flag over variable over file over default; refused where they are wrong."""

import pytest

from khot_server import config


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("CONFIG", "ADDRESS", "DRAIN_S", "STATE_DIR", "DATA_DIR"):
        monkeypatch.delenv(f"KHOT_{name}", raising=False)


def test_defaults_are_loopback_and_open():
    settings = config.load([])
    assert settings.address == "127.0.0.1:50551"
    assert settings.metrics_address == "127.0.0.1:9551"
    assert settings.tokens is None and settings.device == "cpu"
    assert settings.state_dir.name == "khot"


def test_flag_wins_over_variable_over_file_over_default(monkeypatch, tmp_path):
    file = tmp_path / "khot.toml"
    file.write_text("drain_s = 1.0\nlease_s = 2.0\nheartbeat_s = 1.0\n")
    arguments = ["--config", str(file)]
    assert config.load(arguments).drain_s == 1.0
    monkeypatch.setenv("KHOT_DRAIN_S", "2.0")
    assert config.load(arguments).drain_s == 2.0
    assert config.load([*arguments, "--drain-s", "3.0"]).drain_s == 3.0
    monkeypatch.setenv("KHOT_CONFIG", str(file))
    assert config.load([]).lease_s == 2.0


def test_a_file_of_one_load_is_not_read_by_the_next(tmp_path):
    file = tmp_path / "khot.toml"
    file.write_text("drain_s = 1.0\n")
    config.load([f"--config={file}"])
    assert config.load([]).drain_s == 10.0


def test_settings_survive_the_way_to_another_process():
    settings = config.load(["--state-dir", "/somewhere", "--drain-s", "3"])
    assert config.Settings.model_validate_json(settings.model_dump_json()) == settings


BAD = {
    "no port": (["--address", "localhost"], "address: must be host:port; got 'localhost'"),
    "a port too large": (
        ["--metrics-address", "[::1]:65536"],
        "metrics-address: must be host:port",
    ),
    "open to the world": (["--address", "0.0.0.0:1"], "tokens must be given where address is not"),
    "half of TLS": (["--tls-cert", "x.pem"], "tls-cert and tls-key must be given together"),
    "no such tokens": (["--tokens", "/no/such"], "tokens must be a file; got '/no/such'"),
    "no such data": (["--data-dir", "/no/such"], "data-dir must be a directory; got '/no/such'"),
    "a negative time": (["--drain-s", "-1"], "drain-s: .* greater than or equal to 0; got '-1'"),
    "no number": (["--lease-s", "soon"], "lease-s: .*; got 'soon'"),
    "a slow heart": (["--heartbeat-s", "31"], "heartbeat-s must be less than lease-s"),
    "no such file": (["--config", "/no/such.toml"], "config must be a file; got '/no/such.toml'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(config.BadSettings, match=f"^khot-server: {message}"):
        config.load(arguments)


def test_unknown_names_in_a_file_are_refused(tmp_path):
    file = tmp_path / "khot.toml"
    file.write_text('adress = "127.0.0.1:1"\n')
    with pytest.raises(config.BadSettings, match="adress: extra inputs are not permitted"):
        config.load(["--config", str(file)])


def test_unknown_flags_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        config.load(["--adress", "127.0.0.1:1"])
    assert "unrecognized arguments: --adress" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1")),
        *((host, False) for host in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1")),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(address, loopback):
    assert config.is_loopback(address) == loopback
