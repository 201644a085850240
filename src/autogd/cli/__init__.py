"""The command line: one file per command, each with an `Options` dataclass and a `run`."""
