"""Functions that stories of job kinds share."""

from typing import Any

import pytest

from tests.controlplane.kind_cases import default_cases, kinds_with_cases
from tests.controlplane.played_jobs import PlayedJob


def for_kinds_with(story: str) -> Any:
    """Parametrize a test with the kinds to which a story applies."""
    kinds: list[Any] = []
    for kind in kinds_with_cases():
        case = default_cases()[kind.framework]
        optional = {"partial": case.partial, "child": case.child, "pod": case.pod}
        if story not in case.cannot and optional.get(story, True):
            kinds.append(pytest.param(kind, id=kind.framework))
    return pytest.mark.parametrize("kind", kinds)


async def priority_of(job: PlayedJob) -> tuple[int, str]:
    """The priority of a job's Workload, and the name of its class."""
    spec = (await job.workload())["spec"]
    return spec["priority"], spec["priorityClassRef"]["name"]
