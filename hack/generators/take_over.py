"""Generate the tables of the migration guide, between its marks."""

import re
from collections.abc import Iterable
from pathlib import Path

from admitq.adoption.checks import CHECKS
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_api.crds import KINDS, create_crds
from admitq_api.feature_gates import VALIDATION_ONLY, WITHOUT_ALTERNATIVE, Gate, get_note
from admitq_api.labels import COMPAT_GROUP, names_for
from generators.reference_tables import table
from localcluster.folders import REPOSITORY

GUIDE = Path("docs/guides/from-kueue.md")

BETTER = (
    "Two processes: the webhooks answer while the leader changes, and have fewer rights than the manager.",
    "admitq creates and renews certificates itself. Each process is ready only when they are trusted.",
    "Other job kinds can be defined by a few lines of configuration, without code.",
    "Invalid objects are rejected, or quarantined and reported; they never block other workloads.",
    "`admitq simulate` runs your manifests and a load on a virtual clock before you change anything.",
    "`--shadow` runs beside the manager in charge and explains each decision that would have differed.",
    "Every decision is checked against a second model, with random histories, crashes and faults.",
)


def outputs() -> dict[Path, str]:
    """Return the guide with its tables filled."""
    text = (REPOSITORY / GUIDE).read_text()
    for name, lines in (("compared", compared()), ("checks", checks())):
        mark = f"<!-- generated: {name} -->"
        pattern = re.compile(rf"{re.escape(mark)}\n.*?<!-- end -->", re.DOTALL)
        filled = "\n".join((mark, *lines, "<!-- end -->"))
        text = pattern.sub(lambda _, filled=filled: filled, text)
    return {GUIDE: text}


def compared() -> list[str]:
    """Return the tables of features that are the same, better and missing."""
    names = names_for(COMPAT_GROUP)
    listed = [version for crd in create_crds(COMPAT_GROUP) for version in crd["spec"]["versions"]]
    versions = sorted({version["name"] for version in listed if version["served"]})
    less = [gate for gate in Gate if gate not in WITHOUT_ALTERNATIVE and get_note(gate)]
    idle = [gate for gate in less if gate not in VALIDATION_ONLY]
    same: list[tuple[str, ...]] = [
        ("API", f"`{names.group}`, {_listed(versions)}: {', '.join(kind.__name__ for kind in KINDS)}"),
        ("kinds of jobs", ", ".join(kind.kind for kind in BUILT_IN_KINDS)),
        ("names", "labels, annotations, gates, finalizers, field managers, webhooks and their paths"),
        ("metrics", f"`{names.metric_prefix}_…`, with their labels"),
        ("feature gates", f"{len(Gate) - len(less)} of {len(Gate)}"),
        ("messages", "conditions, reasons, events and refusals, word for word"),
    ]
    remedies = {check.name: check.remedy for check in CHECKS}
    missing = [(what, remedies[name]) for name, what in MISSING.items()]
    return [
        "",
        *table(("the same", "what"), same),
        "",
        *table(("better",), [(text,) for text in BETTER]),
        "",
        *table(("missing", "what to do if you use it"), missing),
        "",
        f"Feature gates that are accepted without effect: {_listed(idle)}.",
        "",
        f"Feature gates that only affect the validation of objects: {_listed(sorted(VALIDATION_ONLY))}.",
        "",
    ]


MISSING = {
    "multikueue": "dispatching to other clusters (MultiKueue)",
    "concurrent-admission": "concurrent admission",
    "devices": "dynamic resource allocation (DRA)",
}
"""Missing features, by the name of the check that detects their use."""


def checks() -> list[str]:
    """Return the table of the checks of `admitq adopt`."""
    rows = [(f"`{check.name}`", check.severity.value, check.what, check.remedy) for check in CHECKS]
    return ["", *table(("name", "", "what it means", "what to do"), rows), ""]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
