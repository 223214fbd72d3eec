"""Settings of Sphinx for the guide; `tools/docs/build.py` runs it."""

from typing import Any, Final

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

project = "HyperGrid"
author = "the HyperGrid project"
extensions = ["myst_parser"]
exclude_patterns = ["html"]
language = "en"
# Quotes and dashes of commands stay as they are typed.
smartquotes = False
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
# READMEs begin lists of files at a deeper level, and show fragments that no lexer takes.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
html_theme = "furo"
html_title = "HyperGrid"
html_logo = html_favicon = "icon.svg"
html_static_path = ["static"]
html_css_files = ["guide.css"]
html_copy_source = html_show_sourcelink = html_use_index = html_domain_indices = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options: Final[dict[str, Any]] = {
    "light_css_variables": {"color-brand-primary": "#1b5e8a", "color-brand-content": "#1b5e8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc0ea", "color-brand-content": "#7cc0ea"},
}


def _write_inline(writer: Any, node: nodes.math) -> None:  # noqa: ANN401 - a translator of Sphinx
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _write_block(writer: Any, node: nodes.math_block) -> None:  # noqa: ANN401 - a translator of Sphinx
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Write formulas as MathML, which browsers draw without a script."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
