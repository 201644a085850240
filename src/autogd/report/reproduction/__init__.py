"""The paper's figures and tables, drawn and judged from records; nothing is ever trained here."""

from autogd.report.reproduction.page import Shown, show, text

__all__ = ["Shown", "show", "text"]
