"""The rules of the chart's roles equal a reviewed table: tests/e2e/cases/rbac.yaml.

``python -m tests.e2e.test_rbac_table`` prints the table for the current chart.
"""

import difflib
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import binaries
from tests.e2e.conftest import CHART, KUBERNETES, Rendered

TABLE = Path(__file__).parent / "cases" / "rbac.yaml"
ROWS: list[dict[str, Any]] = yaml.load(TABLE.read_text(), Loader=yaml.CSafeLoader)


def rows_of(objects: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The rules of each role: a line for each resource, or for each resource name."""
    found: dict[str, list[str]] = {}
    for one in objects:
        if one["kind"] in {"ClusterRole", "Role"}:
            lines = [line for rule in one.get("rules") or () for line in _lines(rule)]
            lines += [f"aggregates {term['matchLabels']}" for term in _aggregated(one)]
            found[f"{one['kind']} {one['metadata']['name']}"] = sorted(lines)
    return dict(sorted(found.items()))


def _lines(rule: Mapping[str, Any]) -> Iterable[str]:
    verbs = ",".join(sorted(rule["verbs"]))
    only = [f" only {name}" for name in rule.get("resourceNames", ())] or [""]
    for url in rule.get("nonResourceURLs", ()):
        yield f"{url}: {verbs}"
    for group in rule.get("apiGroups", ()):
        for resource in rule["resources"]:
            yield from (f"{group or 'core'} {resource}: {verbs}{name}" for name in only)


def _aggregated(role: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return role.get("aggregationRule", {}).get("clusterRoleSelectors", ())


def table(of: Mapping[str, list[str]], base: Mapping[str, list[str]]) -> dict[str, Any]:
    """The roles that differ from those of the first configuration: their rules, or null for a missing one."""
    changed = {name: rules for name, rules in of.items() if base.get(name) != rules}
    return {**changed, **{name: None for name in base if name not in of}}


def written(roles: Mapping[str, Any]) -> str:
    """A table in the format of the file."""
    return yaml.dump(dict(sorted(roles.items())), width=200)


@pytest.mark.parametrize("row", ROWS, ids=[row["configuration"] for row in ROWS])
def test_rendered_roles_equal_the_reviewed_table(
    row: Mapping[str, Any], render: Callable[..., Rendered]
) -> None:
    base = {} if row is ROWS[0] else ROWS[0]["roles"]
    reviewed = written(row["roles"])
    rendered = written(table(rows_of(render(row["values"]).objects.values()), base))
    difference = difflib.unified_diff(
        reviewed.splitlines(), rendered.splitlines(), "reviewed", "rendered", lineterm=""
    )
    assert reviewed == rendered, "\n" + "\n".join(difference)


def test_rbac_table_has_at_least_six_configurations() -> None:
    assert len({str(row["values"]) for row in ROWS}) >= 6


def main() -> None:
    """Print the table of the configurations in the file, with the comment at its top."""
    helm = str(binaries.build()["helm"])
    text = TABLE.read_text()
    print(text[: text.index("\n- ")])
    base: dict[str, list[str]] = {}
    options = (f"--kube-version={KUBERNETES}", "--values=/dev/stdin")
    for row in ROWS:
        done = subprocess.run(
            [helm, "template", "admitq", str(CHART), "--namespace=admitq-system", *options],
            input=yaml.dump(row["values"]),
            capture_output=True,
            text=True,
            check=True,
        )
        every = rows_of(filter(None, yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)))
        shown = {**row, "roles": dict(sorted(table(every, base).items()))}
        base = base or every
        yaml.dump([shown], sys.stdout, width=200, sort_keys=False)


if __name__ == "__main__":
    main()
