from pathlib import Path

import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.registry import BUILT_IN_KINDS
from generators import tested_versions
from localcluster import project_modules
from localcluster.folders import REPOSITORY


@pytest.mark.parametrize("kind", [pytest.param(one, id=one.framework) for one in BUILT_IN_KINDS])
def test_every_kind_has_a_version_it_was_tested_with(kind: tested_versions.Integration) -> None:
    text = tested_versions.sentence(kind)
    assert "Kubernetes v1." in text
    pinned = project_modules.versions()
    named = [module for module, version in pinned.items() if f"`{module}` {version}" in text]
    assert (named == []) == (kind.group in {"", "apps", "batch"})


def test_kind_with_a_case_was_tested_with_its_operator() -> None:
    assert tested_versions.sentence(JOBSET).startswith("Tested with `sigs.k8s.io/jobset` v")
    assert tested_versions.sentence(JOB).startswith("Tested with Kubernetes v")


def test_page_without_marks_is_reported() -> None:
    with pytest.raises(tested_versions.MissingMarksError, match=r"a\.md must have one pair"):
        tested_versions.fill("# A\n", "text", Path("a.md"))


def test_pages_of_all_kinds_are_up_to_date() -> None:
    for path, text in tested_versions.outputs().items():
        assert (REPOSITORY / path).read_text() == text
