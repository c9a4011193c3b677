"""`python -m zinc_rt` is the `zinc` command."""

from zinc_rt.cli.main import entry

if __name__ == "__main__":
    entry()
