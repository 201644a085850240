"""How the site is built: `make docs`."""

import xml.etree.ElementTree as ET

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
autodoc_typehints_description_target = "documented"  # private fields have no description, and do not show


MATHML = "http://www.w3.org/1998/Math/MathML"
BAR = "\u2015"
# browsers leave letters of another style to the author: these are the ones that we use
LETTERS = {("script", "L"): "ℒ", ("double-struck", "R"): "ℝ", ("double-struck", "E"): "𝔼"}


def mathml(node: nodes.Element, display: str) -> str:
    """A formula as browsers draw it themselves: no script, no network."""
    ET.register_namespace("", MATHML)
    formula = ET.fromstring(latex2mathml.converter.convert(node.astext(), display=display))
    for each in formula.iter(f"{{{MATHML}}}mi"):
        style = each.attrib.pop("mathvariant", None)
        each.text = LETTERS[style, each.text] if style in ("script", "double-struck") else each.text
        if style not in (None, "script", "double-struck"):
            each.set("mathvariant", style)
    for each in formula.iter(f"{{{MATHML}}}mover"):
        over = each[1]
        if over.text == BAR:  # a mean: its bar is a border (mathml.css)
            each.tag, each.attrib = f"{{{MATHML}}}mrow", {"class": "mean"}
            each.remove(over)
    return ET.tostring(formula, encoding="unicode")


def inline_formula(writer, node):
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block_formula(writer, node):
    writer.body.append(f'<div class="formula">{mathml(node, "block")}</div>')
    raise nodes.SkipNode


def keep_spreads(app, doctree, name):
    """A number in a table stays on one line with its spread."""
    for cell in doctree.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            if " ± " in text:
                text.parent.replace(text, nodes.Text(text.replace(" ± ", "\u00a0±\u00a0")))


def setup(app):
    app.connect("doctree-resolved", keep_spreads)
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
