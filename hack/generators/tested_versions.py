"""Generate which versions of operators and of Kubernetes each page of a kind was tested with.

The versions are those that the modules of the local control plane pin. The sentence is between two marks of
the page, which is written by hand otherwise.
"""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from admitq.integrations.base import Integration
from admitq.integrations.registry import BUILT_IN_KINDS
from localcluster import binaries, crds, operator_table, project_modules
from localcluster.folders import REPOSITORY

PAGES: Final = Path("docs/guides/kinds")
CASES: Final = Path("tests/operators/cases")

_PART: Final = re.compile(
    r"(?P<begin><!-- tested versions -->\n).*?(?P<end><!-- end of tested versions -->)", re.DOTALL
)
_LINE: Final = 119
_BUILT_IN: Final = {"", "apps", "batch"}
"""Groups of kinds that every API server serves."""


class MissingMarksError(Exception):
    """A page of a kind has no marks, or more than one pair."""


def outputs() -> dict[Path, str]:
    """Return the pages of all built-in kinds."""
    pages = {PAGES / f"{kind.kind.lower()}.md": kind for kind in BUILT_IN_KINDS}
    return {
        path: fill((REPOSITORY / path).read_text(encoding="utf-8"), sentence(kind), path)
        for path, kind in pages.items()
    }


def fill(page: str, text: str, path: Path) -> str:
    """Return a page with the sentence between its marks.

    Raises:
        MissingMarksError: the page has not exactly one pair of marks.
    """
    if len(_PART.findall(page)) != 1:
        raise MissingMarksError(f"{path} must have one pair of the marks <!-- tested versions -->")
    lines = textwrap.fill(text, _LINE, break_long_words=False, break_on_hyphens=False)
    return _PART.sub(lambda match: f"{match['begin']}\n{lines}\n\n{match['end']}", page)


def sentence(kind: Integration) -> str:
    """Return what a kind was tested with."""
    kubernetes = project_modules.versions((binaries.MODULE / "go.mod").read_text())["k8s.io/kubernetes"]
    if kind.group in _BUILT_IN:
        return f"Tested with Kubernetes {kubernetes}."
    case = REPOSITORY / CASES / f"{kind.kind.lower()}.yaml"
    if case.exists():
        given: dict[str, Any] = yaml.safe_load(case.read_text())
        modules = [each.source.module for each in operator_table.with_needs(given["operators"])]
        return f"Tested with {_versions(modules)}, and Kubernetes {kubernetes}."
    name = f"{kind.plural}.{kind.group}"
    modules = [
        project.module for project in crds.PROJECTS if name in {crds.name_of(file) for file in project.files}
    ]
    return (
        f"Tested with the CRD of {_versions(modules)}, and Kubernetes {kubernetes}. "
        "The tests play the controller."
    )


def _versions(modules: Iterable[str]) -> str:
    pinned = project_modules.versions()
    return ", ".join(f"`{module}` {pinned[module]}" for module in dict.fromkeys(modules))
