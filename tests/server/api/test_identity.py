"""Tokens: hashed at rest, with a tenant and scopes."""

import pytest

from khot_server.api import identity
from khot_server.api.identity import BadTokens, Tokens, authorize, new_token
from khot_server.errors import PermissionDenied, Unauthenticated


@pytest.fixture
def tokens(tmp_path):
    """Tokens of three callers, by what they may do, and the loaded file."""
    made, text = {}, ""
    for scope in identity.SCOPES:
        made[scope], entry = new_token(f"{scope}-team", [scope])
        text += entry
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    assert all(token not in text for token in made.values()), "hashed at rest"
    return made, Tokens.load(path)


def bearer(token: str) -> list[tuple[str, str]]:
    return [("user-agent", "x"), ("authorization", f"Bearer {token}")]


def test_a_token_is_its_tenant(tokens):
    made, known = tokens
    assert authorize(known, bearer(made["jobs"]), "jobs").tenant == "jobs-team"


def test_a_scope_is_needed_and_admin_has_all(tokens):
    made, known = tokens
    with pytest.raises(PermissionDenied, match=r"must have the scope jobs; got \['sample'\]"):
        authorize(known, bearer(made["sample"]), "jobs")
    assert authorize(known, bearer(made["admin"]), "jobs").tenant == "admin-team"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([], "must be a bearer token; got none"),
        ([("authorization", "Basic abc")], "got another kind of authorization"),
        ([("authorization", "Bearer ")], "must be a bearer token"),
        (bearer("khot_wrong"), "token must be a known one; got an unknown one"),
    ],
)
def test_others_are_refused(tokens, metadata, message):
    with pytest.raises(Unauthenticated, match=message):
        authorize(tokens[1], metadata, "sample")


def test_without_tokens_everybody_is_the_local_tenant():
    assert authorize(None, [], "jobs") == identity.LOCAL


def test_two_tokens_are_never_the_same():
    assert new_token("a", ["jobs"])[0] != new_token("a", ["jobs"])[0]


@pytest.mark.parametrize(
    "text",
    [
        "not toml [",
        "",
        '[[tokens]]\ntenant = "a"\nscopes = ["jobs"]',
        '[[tokens]]\ntenant = "a"\nscopes = ["root"]\nsha256 = "' + "0" * 64 + '"',
        '[[tokens]]\ntenant = ""\nscopes = ["jobs"]\nsha256 = "' + "0" * 64 + '"',
        '[[tokens]]\ntenant = "a"\nscopes = ["jobs"]\nsha256 = "00"',
    ],
)
def test_bad_files_are_refused(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(BadTokens, match="must hold"):
        Tokens.load(path)
