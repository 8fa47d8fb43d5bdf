"""Stories of queues and admission on the real control plane: at least one for each row of the semantics."""

import pytest

from tests.controlplane.play import Case, cases, play
from tests.controlplane.stage import Stage

FILES = ("waking.yaml", "nominate.yaml", "flavors.yaml", "preemption.yaml")


@pytest.mark.parametrize("case", [case for file in FILES for case in cases(file)], ids=str)
async def test_story_of_queues_and_admission_ends_as_expected(stage: Stage, case: Case) -> None:
    await play(stage, case)


@pytest.mark.parametrize("case", cases("fair.yaml"), ids=str)
async def test_story_of_fair_sharing_ends_as_expected(fair_stage: Stage, case: Case) -> None:
    await play(fair_stage, case)
