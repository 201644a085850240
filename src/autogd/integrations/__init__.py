"""Integrations with other training loops; each file needs the framework it is named after."""
