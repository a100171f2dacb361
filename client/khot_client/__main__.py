"""The `khot` command, and `python -m khot_client`: the command line, from the first moment on."""

import sys


def main() -> None:
    """Run the command line; also while it loads, Ctrl-C is told of in one line.

    So is a fault of ours: what a user can do about an error is told where it is known.
    """
    try:
        from khot_client.cli import app

        app()
    except KeyboardInterrupt:
        print("khot: stopped by Ctrl-C, before it did anything. Run it again", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        got = " ".join(f"{type(error).__name__}: {error}".split())
        then = "Run it again with --debug, and report what it shows"
        print(f"khot: this should not have happened; got {got}. {then}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
