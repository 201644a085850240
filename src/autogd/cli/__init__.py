"""The command line: one file a command, each an `Options` dataclass and a `run`."""
