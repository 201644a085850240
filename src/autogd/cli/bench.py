"""Measure AGD against its rivals; every measurement has its own options (`autogd bench zoo --help`) and --json.

example: autogd bench quality --report
"""

from typing import Annotated

from tyro.conf import subcommand

from autogd.cli import bench_coverage, bench_quality, bench_scale, bench_step, bench_trust, bench_zoo

__all__ = ["Options", "run"]

# one line per measurement; its file has `Options` and `run`, like a command's
Options = (
    Annotated[bench_coverage.Options, subcommand("coverage", description=bench_coverage.__doc__)]
    | Annotated[bench_quality.Options, subcommand("quality", description=bench_quality.__doc__)]
    | Annotated[bench_scale.Options, subcommand("scale", description=bench_scale.__doc__)]
    | Annotated[bench_step.Options, subcommand("step", description=bench_step.__doc__)]
    | Annotated[bench_trust.Options, subcommand("trust", description=bench_trust.__doc__)]
    | Annotated[bench_zoo.Options, subcommand("zoo", description=bench_zoo.__doc__)]
)


def run(options: Options) -> int:
    """Run the chosen measurement."""
    match options:
        case bench_coverage.Options():
            return bench_coverage.run(options)
        case bench_quality.Options():
            return bench_quality.run(options)
        case bench_scale.Options():
            return bench_scale.run(options)
        case bench_step.Options():
            return bench_step.run(options)
        case bench_trust.Options():
            return bench_trust.run(options)
        case bench_zoo.Options():
            return bench_zoo.run(options)
