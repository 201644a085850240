"""How the site is built: `make docs`."""

from autogd import __version__

project = "autogd"
author = "the autogd contributors"
copyright = "the autogd contributors, Apache-2.0"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"autogd {release}"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
