"""From records to tables, figures and one self-contained page; nothing is trained here."""

from autogd.report.figures import draw
from autogd.report.page import write_page
from autogd.report.tables import Group, group_runs, summarise

__all__ = ["Group", "draw", "group_runs", "summarise", "write_page"]
