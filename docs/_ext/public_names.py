"""References in docstrings, which name a thing by where it is defined, lead to the page of its public name.

``toporo.topology.diffusion.diffusion_emd`` is documented as ``toporo.diffusion_emd``. What exists and is not public is
shown as code; what does not exist is a warning, and so an error of ``make docs``.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import toporo

#: What scikit-learn adds to estimators so that groups can be routed; its own pages describe it.
ROUTING = ("get_metadata_routing",)


def _public(target: str, documented: dict[str, Any]) -> str | None:
    """The documented name of the same thing: of a public name, a member of it, or a name of a public package."""
    parts = target.split(".")
    for size in (1, 2):
        tail = parts[-size:]
        for start in ("toporo", *(f"toporo.{package}" for package in toporo.__all__)):
            name = ".".join([start, *tail])
            if name in documented:
                return name
    return None


def _exists(target: str) -> bool:
    parts = target.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            declared = (getattr(thing, each, {}) for each in ("__annotations__", "__dataclass_fields__"))
            if not hasattr(thing, part) and not any(part in names for names in declared):
                return False
            thing = getattr(thing, part, None)
        return True
    return False


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Node | None:
    if node.get("refdomain") != "py":
        return None
    domain = env.domains["py"]
    target, documented = node["reftarget"], domain.data["objects"]  # type: ignore[attr-defined]
    module = node.get("py:module") or ""
    name = _public(target, documented)
    if name is not None:
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)  # type: ignore[arg-type]
    inside = ".".join(filter(None, [module, node.get("py:class"), target]))
    if any(map(_exists, (target, inside, f"{module}.{target}", f"toporo.{target}"))):
        return content
    return None


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:  # noqa: ARG001
    if what == "module" and getattr(toporo, name, None) is obj:
        return True  # it has a page of its own
    routed = name in ROUTING or (name.startswith("set_") and name.endswith("_request"))
    return True if routed else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Where Sphinx has found nothing itself."""
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
