"""Which commit this code is of."""

import subprocess
from pathlib import Path


def commit() -> str:
    """The commit of this code, with a plus if it was changed since; empty if it is in none."""
    here = Path(__file__).parent

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False
        )

    try:
        tracked = git("ls-files", "--error-unmatch", "../__init__.py")
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)tests")
    except OSError:  # no git here
        return ""
    if tracked.returncode or head.returncode:
        return ""
    return head.stdout.strip() + ("+" if changed.returncode else "")
