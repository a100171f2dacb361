"""Address, token and TLS from arguments, the environment, or a file with profiles."""

import pytest

from khot_client import BadSettings, Client
from khot_client.settings import DEFAULT_ADDRESS, resolve

FILE = """
default_profile = "lab"

[profiles.lab]
address = "127.0.0.1:7"
token_file = "lab.token"

[profiles.far]
address = "khot.example.org:443"
token = "far-secret"
ca = "ca.pem"
"""

CERTIFICATES = b"-----BEGIN CERTIFICATE-----\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes the file, and what it names, where the client looks for it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "khot"
    folder.mkdir()
    (folder / "lab.token").write_text("lab-secret\n")
    (folder / "ca.pem").write_bytes(CERTIFICATES)

    def write(text: str = FILE):
        (folder / "config.toml").write_text(text)
        return folder / "config.toml"

    return write


def test_without_anything_it_is_this_machine():
    assert resolve() == resolve(DEFAULT_ADDRESS) and resolve().token == ""


def test_the_default_profile_is_used(config):
    config()
    settings = resolve()
    assert (settings.address, settings.token, settings.tls) == ("127.0.0.1:7", "lab-secret", False)


def test_a_profile_is_chosen_by_argument_or_variable(config, monkeypatch):
    config()
    far = resolve(profile="far")
    assert (far.address, far.token, far.tls) == ("khot.example.org:443", "far-secret", True)
    assert far.authorities == CERTIFICATES
    monkeypatch.setenv("KHOT_PROFILE", "far")
    assert resolve() == far and resolve(profile="lab").address == "127.0.0.1:7"


def test_arguments_go_before_the_environment_and_that_before_the_profile(config, monkeypatch):
    config()
    monkeypatch.setenv("KHOT_TOKEN", "from-variable")
    assert resolve().token == "from-variable"
    assert resolve(token="from-argument").token == "from-argument"
    monkeypatch.setenv("KHOT_ADDRESS", "127.0.0.1:8")
    assert resolve().address == "127.0.0.1:8"
    assert resolve("127.0.0.1:9").address == "127.0.0.1:9"


def test_the_token_of_a_profile_goes_to_no_other_server(config, monkeypatch):
    config()
    assert resolve("127.0.0.1:9").token == ""
    monkeypatch.setenv("KHOT_ADDRESS", "127.0.0.1:8")
    assert resolve().token == ""
    assert resolve("127.0.0.1:9", profile="lab").token == "lab-secret", "unless it is named"


@pytest.mark.parametrize(
    ("value", "tls"), [("1", True), ("true", True), ("0", False), ("FALSE", False), ("", False)]
)
def test_tls_is_turned_on_by_a_variable(monkeypatch, value, tls):
    monkeypatch.setenv("KHOT_TLS", value)
    assert resolve().tls is tls
    assert resolve(tls=not tls).tls is not tls


def test_the_variable_may_be_a_file_of_authorities(monkeypatch, tmp_path):
    path = tmp_path / "ca.pem"
    path.write_bytes(CERTIFICATES)
    monkeypatch.setenv("KHOT_TLS", str(path))
    assert resolve().authorities == CERTIFICATES


def test_a_file_without_certificates_is_refused_before_grpc_has_lines_about_it(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_bytes(b"\x00no")
    with pytest.raises(BadSettings, match=r"tls must be True or the path .*ca.pem', which is none"):
        resolve(tls=path)
    with pytest.raises(BadSettings, match="cert must be the path of a PEM file; got"):
        resolve(cert=path, key=path, tls=True)


def test_the_file_may_be_elsewhere(config, monkeypatch, tmp_path):
    other = config().rename(tmp_path / "khot" / "other.toml")
    monkeypatch.setenv("KHOT_CLIENT_CONFIG", str(other))
    monkeypatch.setenv("KHOT_CONFIG", "the server's own")
    assert resolve().address == "127.0.0.1:7"
    other.unlink()
    with pytest.raises(BadSettings, match=r"other.toml: must be a TOML file with profiles; got no"):
        resolve()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "must be a TOML file; got"),
        ("default_profile = 1", "default_profile must be of type str; got int"),
        ('default_profile = "b"\n[profiles.a]', "profile must be one of: a; got 'b'"),
        ('default_profile = "a"\nprofiles = 1', "profiles must be of type dict; got int"),
        ("[profiles]\na = 1", "profiles.a must be a table"),
        ("[profiles.a]\nadress = 'x'", "keys must be among address, .*; got 'adress'"),
        ("[profiles.a]\ntoken = 7", "token must be of type str; got int"),
        ("[profiles.a]\ntoken = 'x'\ntoken_file = 'y'", "must have token or token_file; got both"),
        ("default_profile = 'a'\n[profiles.a]\ntoken_file = 'no'", "a file with the token alone"),
        ("default_profile = 'a'\n[profiles.a]\nca = 'no'", "must be True or the path of a PEM"),
    ],
)
def test_a_bad_file_is_refused(config, text, message):
    config(text)
    with pytest.raises(BadSettings, match=message):
        resolve()


def test_an_unreadable_file_is_refused(config):
    path = config()
    path.unlink()
    path.mkdir()
    with pytest.raises(BadSettings, match="config.toml: must be readable; got Is a directory"):
        resolve()


def test_a_profile_without_a_file_is_refused():
    with pytest.raises(BadSettings, match="must be a TOML file with profiles; got none"):
        resolve(profile="lab")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cert": "x.pem"}, "cert must be the path of a PEM file; got 'x.pem', No such file"),
        ({"key": __file__}, "cert and key must be given together"),
        ({"cert": __file__, "key": __file__}, "tls must be on where there is a cert"),
    ],
)
def test_certificates_go_together(arguments, message):
    with pytest.raises(BadSettings, match=message):
        resolve(**arguments)


def test_no_repr_shows_a_secret(config):
    config()
    settings = resolve()
    with Client() as client:
        for shown in (repr(settings), repr(client), repr(vars(client))):
            assert "secret" not in shown
