"""Settings: flag over variable over file over default; refused where they are wrong."""

import pytest
import trustme

from khot_server import config


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in config.Settings.model_fields:
        monkeypatch.delenv(f"KHOT_{name.upper()}", raising=False)


def test_defaults_are_loopback_and_open():
    settings = config.load([])
    assert settings.address == "127.0.0.1:50551"
    assert settings.metrics_address == "127.0.0.1:9551"
    assert settings.tokens is None and settings.device == "cpu"
    assert settings.state_dir.name == "khot"


def test_anonymous_opens_any_address(monkeypatch):
    assert not config.load([]).anonymous
    monkeypatch.setenv("KHOT_ANONYMOUS", "true")
    settings = config.load(["--address", "0.0.0.0:1"])
    assert settings.anonymous and settings.tokens is None


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


def test_devices_are_a_list_with_commas(monkeypatch):
    assert config.load([]).devices == ("cpu",)
    settings = config.load(["--device", "cuda:1, cpu"])
    assert settings.devices == ("cuda:1", "cpu") and settings.device == "cuda:1,cpu"
    monkeypatch.setenv("KHOT_DEVICE", "cuda,cuda:1")
    assert config.load([]).devices == ("cuda", "cuda:1")


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
    "open and guarded": (
        ["--anonymous", "true", "--tokens", "/no/such"],
        "tokens and anonymous must not be given together; got both",
    ),
    "half of TLS": (["--tls-cert", "x.pem"], "tls-cert and tls-key must be given together"),
    "callers without TLS": (["--tls-client-ca", "x.pem"], "tls-client-ca must come with tls-cert"),
    "no such tokens": (["--tokens", "/no/such"], "tokens must be a file; got '/no/such'"),
    "no such data": (["--data-dir", "/no/such"], "data-dir must be a directory; got '/no/such'"),
    "a negative time": (["--drain-s", "-1"], "drain-s: .* greater than or equal to 0; got '-1'"),
    "no number": (["--lease-s", "soon"], "lease-s: .*; got 'soon'"),
    "no device": (["--device", "cpu,"], "device: must be devices with commas .*; got 'cpu,'"),
    "a device twice": (
        ["--device", "cuda,cpu,cuda:0"],
        "device: must be .*, each once; got 'cuda,",
    ),
    "no engines": (["--engines-per-device", "0"], "engines-per-device: .* greater than 0; got '0'"),
    "too little patience": (
        ["--engine-silence-s", "0.1"],
        "engine-silence-s: .* to 0.5; got '0.1'",
    ),
    "a wait that ends before": (["--max-wait-us", "-1"], "max-wait-us: .* equal to 0; got '-1'"),
    "for ever": (["--max-batch-s", "inf"], "max-batch-s: .* finite number; got 'inf'"),
    "a slow heart": (["--heartbeat-s", "31"], "heartbeat-s must be less than lease-s"),
    "no such file": (["--config", "/no/such.toml"], "config must be a file; got '/no/such.toml'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(config.BadSettings, match=f"^khot-server: {message}"):
        config.load(arguments)


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """A certificate with its key, the key of another, and a file that is neither."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    for name in ("server", "other"):
        leaf = authority.issue_cert("localhost")
        leaf.private_key_pem.write_to_path(folder / f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    (folder / "text").write_text("no certificate")
    return folder


@pytest.mark.parametrize(("cert", "key"), [("text", "server.key"), ("server.pem", "other.key")])
def test_a_certificate_must_fit_its_key(pems, cert, key):
    flags = ["--tls-cert", str(pems / cert), "--tls-key", str(pems / key)]
    with pytest.raises(config.BadSettings, match="must be a certificate chain and its key"):
        config.load(flags)


def test_an_authority_for_callers_must_be_a_certificate(pems):
    flags = ["--tls-cert", str(pems / "server.pem"), "--tls-key", str(pems / "server.key")]
    assert config.load(flags).tls_client_ca is None
    with pytest.raises(config.BadSettings, match="tls-client-ca must be a certificate, PEM; got"):
        config.load([*flags, "--tls-client-ca", str(pems / "text")])
    authority = pems / "server.pem"
    assert config.load([*flags, "--tls-client-ca", str(authority)]).tls_client_ca == authority


def test_unknown_names_in_a_file_are_refused_without_their_values(tmp_path):
    file = tmp_path / "khot.toml"
    file.write_text('adress = "127.0.0.1:1"\nprofiles.lab.token = "secret"\n')
    with pytest.raises(config.BadSettings, match="adress: must be a setting") as raised:
        config.load(["--config", str(file)])
    assert "profiles: must be a setting" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_is_of_one_call_alone(tmp_path):
    file = tmp_path / "khot.toml"
    file.write_text('address = "127.0.0.1:1"\n')
    assert config.load(["--config", str(file)]).address == "127.0.0.1:1"
    assert config.Settings().address != "127.0.0.1:1"


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
