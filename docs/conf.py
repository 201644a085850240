"""How the site is built: `make docs`."""

import latex2mathml.converter
from docutils import nodes

from autogd import __version__

project = "autogd"
author = "the autogd contributors"
copyright = "the autogd contributors, Apache-2.0"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks show the outputs that are stored in them; tests run their cells
html_theme = "furo"
html_title = f"autogd {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["mathml.css"]
exclude_patterns = ["_build"]
autodoc_typehints = "description"


def mathml(node: nodes.Element, display: str) -> str:
    """A formula as browsers draw it themselves: no script, no network."""
    return latex2mathml.converter.convert(node.astext(), display=display)


def inline_formula(writer, node):
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block_formula(writer, node):
    writer.body.append(f'<div class="formula">{mathml(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
