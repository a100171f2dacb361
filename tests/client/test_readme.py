"""The page of the client: its example runs against a server, and its tables are whole."""

import re
from pathlib import Path

import khot_client
from khot_client import KhotError

CLIENT = Path(__file__).parents[2] / "client"
PAGE = (CLIENT / "README.md").read_text()


def test_the_example_shows_what_it_prints(server, monkeypatch, capsys):
    monkeypatch.setenv("KHOT_ADDRESS", server)
    for block in re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "client/README.md", "exec"), {"__name__": "__example__"})
        assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", block)


def test_every_error_has_a_row():
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    public = {getattr(khot_client, name) for name in khot_client.__all__ if name != "__version__"}
    errors = {cls for cls in public if isinstance(cls, type) and issubclass(cls, KhotError)}
    leaves = {cls.__name__ for cls in errors if not cls.__subclasses__()}
    assert listed == leaves


def test_every_file_has_a_row():
    files = PAGE[PAGE.index("## Files") :]
    listed = set(re.findall(r"`khot_client/([\w./]+)`", files))
    modules = {path.name for path in (CLIENT / "khot_client").glob("*.py")} - {"__init__.py"}
    assert listed == modules | {"cli/", "reproduce/"}
