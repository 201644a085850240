"""`python -m autogd` is the command `autogd`."""

from autogd.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
