"""The published records: in the folder `records` of the repository, one file a figure, and not in the package."""

from pathlib import Path

__all__ = ["RECORDS", "WHERE"]

RECORDS = Path(__file__).parents[3] / "records"
"""The folder of a checkout; an installed package has none."""
WHERE = "The published records are in the folder `records` of the project's repository, not in the installed package"
"""For messages: why there may be none, and where they are."""
