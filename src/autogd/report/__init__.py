"""From records to tables, figures and pages; nothing here trains."""
