"""The published records: one file per figure in the folder `records` of the repository; not in the package."""

from pathlib import Path

__all__ = ["RECORDS", "WHERE"]

RECORDS = Path(__file__).parents[3] / "records"
"""The folder of a checkout; an installed package has none."""
WHERE = "The published records are in the folder `records` of the project's repository, not in the installed package"
"""For messages to users of an installed package."""
