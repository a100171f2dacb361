"""The `khot` command, and `python -m khot_client`: the command line, from the first moment on."""

import sys


def main() -> None:
    """Run the command line; also while it loads, Ctrl-C is told of in one line."""
    try:
        from khot_client.cli import app

        app()
    except KeyboardInterrupt:
        print("khot: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
