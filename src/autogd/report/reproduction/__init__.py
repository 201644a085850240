"""The paper's figures and tables, drawn and judged from records; nothing is trained here."""

from autogd.report.reproduction.page import Shown, glance, show, text

__all__ = ["Shown", "glance", "show", "text"]
