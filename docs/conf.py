"""The site: `make docs` builds it into docs/_build/html, which needs neither network nor server."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])  # of the notebooks
os.environ.setdefault("DDE_BACKEND", "pytorch")

from typing_extensions import Unpack  # noqa: E402

import madamoo  # noqa: E402

for module in ("_madam", "_multi_objective"):  # imported there for type checkers only; unknown, it hides other types
    sys.modules[f"madamoo.optimizer.{module}"].Unpack = Unpack  # type: ignore[attr-defined]

project, author, copyright = "madamoo", "The madamoo developers", "the madamoo developers"
version = release = madamoo.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. ", True

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"madamoo {release}"
html_math_renderer = "mathml"
html_show_sphinx = html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e63", "color-brand-content": "#0b6e63"},
    "dark_css_variables": {"color-brand-primary": "#57c7b8", "color-brand-content": "#57c7b8"},
}
html_static_path = ["_static"]
html_css_files = ["site.css"]

# Modules whose public names, those in __all__, must each have an entry.
DOCUMENTED = [
    "madamoo",
    "madamoo.bench",
    "madamoo.diagnostics",
    "madamoo.integrations.accelerate",
    "madamoo.integrations.deepxde",
    "madamoo.integrations.lightning",
    "madamoo.integrations.torchjd",
    "madamoo.integrations.transformers",
    "madamoo.medical",
    "madamoo.metric",
    "madamoo.optimizer",
    "madamoo.pareto",
    "madamoo.pinn",
    "madamoo.pinn.cases",
    "madamoo.relatives",
    "madamoo.selftest",
    "madamoo.solvers",
    "madamoo.testing",
    "madamoo.tuning",
]
log = logging.getLogger(__name__)


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of every public name that has no entry under the name of its module, or of the class's own."""
    described = env.get_domain("py").objects  # type: ignore[attr-defined]
    for module in map(importlib.import_module, DOCUMENTED):
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            known = any(key.rpartition(".")[2] == name and _resolve(key) is item for key in described)
            if not known and name not in ("__version__", "solvers"):
                log.warning("no entry for %s.%s", module.__name__, name)


def _resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def escape_bars(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """In docstrings |g| is a norm, not reST's substitution."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(?<![`\\])\|", r"\\|", line)


def link_outside(app: Sphinx, doctree: nodes.document) -> None:
    """Links out of docs/, as a forge shows them: files are copied along, folders are named."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(doctree.findall(addnodes.pending_xref)):
        target = node.get("reftarget", "")
        if node.get("reftype") != "myst" or not target:
            continue
        path = (here / target).resolve() if not os.path.isabs(target) else Path(target)
        path = path if path.exists() else path.with_name(path.name + ".md")
        if path.is_relative_to(app.srcdir) or not path.is_relative_to(ROOT):
            continue
        if path.is_dir():
            node.replace_self(node.children)
        elif path.is_file():
            link = addnodes.download_reference(reftarget=os.path.relpath(path, here), refdoc=app.env.docname)
            link += node.children
            node.replace_self(link)


def visit_math(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after napoleon
    app.connect("doctree-read", link_outside, priority=400)  # before the files to copy are collected
    app.connect("env-check-consistency", check_complete)
