"""Settings of the documentation site; ``make docs`` builds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

os.environ.pop("TOPORO_DATA", None)  # examples show the same wherever they are built

from toporo.version import __version__  # noqa: E402

project, author = "toporo", "The toporo developers"
project_copyright = "the toporo developers, MIT licence"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "accessible",
    "house_docstrings",
    "mathml",
    "public_names",
    "repository",
]
exclude_patterns = ["_build", "README.md", "guide.md", "gallery/*.py", "gallery/*.ipynb", "**/GALLERY_HEADER.rst"]
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!toporo\.).*")]  # other packages' names: there is no net to ask
templates_path = ["_templates"]

# ---------------------------------------------------------------- Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page may begin below the first level

# ---------------------------------------------------------------- the API
autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": False}
autodoc_typehints = "none"  # docstrings say what is taken in words
autodoc_member_order = "bysource"
autoclass_content = "class"
python_use_unqualified_type_names = True
add_module_names = False
smartquotes = False  # "auto" is a value

# ---------------------------------------------------------------- the gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r".*",
    "run_stale_examples": True,  # what they show depends on the sources, not on themselves alone
    "within_subsection_order": "gallery_look.Order",
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "show_signature": False,
    "copyfile_regex": r".*\.rst",
    "matplotlib_animations": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("gallery_look.reset",),
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "plot_gallery": True,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("toporo",),
    "inspect_global_variables": False,
    "log_level": {"backreference_missing": "info"},
}

# ---------------------------------------------------------------- looks
html_theme = "furo"
html_title = "toporo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_style, pygments_dark_style = "default", "github-dark"  # comments that can be read
