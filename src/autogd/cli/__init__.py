"""The command line: each command is a dataclass; its docstring is the help, its fields the options, `run` the work."""
