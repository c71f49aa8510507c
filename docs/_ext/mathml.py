"""Mathematics as MathML, which browsers draw themselves: no script, no font and nothing from the net."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

LOG = logging.getLogger(__name__)
#: Sizes, which MathML sees to by itself.
SIZES = re.compile(r"\\(?:[bB]ig+[lrm]?|textstyle)(?![a-zA-Z])")


def _converted(node: nodes.Element, *, as_block: bool) -> str:
    try:
        done = tex2mathml(SIZES.sub("", node.astext()), as_block=as_block)
        return re.sub(r"<mo>([‖{}])</mo>", r'<mo stretchy="false">\1</mo>', done)  # as tall as a letter, beside a sum
    except MathError as error:
        LOG.warning("%s In: %s", error, node.astext(), location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_converted(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    mathml = _converted(node, as_block=True)
    number = ""
    if node.get("number"):
        number = f'<span class="eqno">({get_node_equation_number(translator, node)})</span>'
    translator.body.append(translator.starttag(node, "div", CLASS="math", tabindex="0"))  # it may scroll
    translator.body.append(f"{number}{mathml}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """For ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
