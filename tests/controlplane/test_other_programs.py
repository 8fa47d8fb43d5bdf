"""Writes of another program to Workloads lead to the same end state as writes of admitq.

semantics, Workload lifecycle: the object is the admission state, whichever program wrote it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from admitq.runtime.errors import ApiError
from admitq_api.conditions import format_time
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane import workload_scenes
from tests.controlplane.further_writes import FURTHER, written_workload
from tests.controlplane.manners import Manner, write
from tests.controlplane.recording import sum_of_series
from tests.controlplane.rest import Snapshot, facts, find_violations
from tests.controlplane.stage import Stage
from tests.controlplane.table_of_writes import DRAWN, TABLE, Row
from tests.controlplane.workload_scenes import subject_of
from tests.kills.likeness import differences

FreshStage = Callable[[], AbstractAsyncContextManager[Stage]]

ROWS: Final[Mapping[str, Sequence[Row]]] = {**TABLE, **FURTHER}
"""By topic."""

PLAYS_AT_ONCE: Final = 16
STILL_SECONDS: Final = 2.0
"""How long nothing is written at rest: longer than all intervals at which admitq reconciles something."""
COUNTING_SECONDS: Final = 25.0
"""How long queues may take at the end until they report the same as in the reference play."""
SETTLING_SECONDS: Final = 0.3
"""How long nothing is written before the next random write, if that waits for the consequences."""

EXAMPLES: Final = int(os.environ.get("ADMITQ_EXAMPLES", "1"))
"""How many times the random plays run. HYPOTHESIS_PROFILE=explore draws other plays in each run."""
PLAYS_OF_AN_EXAMPLE: Final = 8
"""Plays mostly wait, so those of an example run at the same time."""
SUBJECTS: Final = ("j", "k", "w", "w0")
"""The jobs and the Workloads without job that random writes change."""


async def at_rest(
    stage: Stage, reached: Callable[[Snapshot], bool], *, what: str, still: float = STILL_SECONDS
) -> Snapshot:
    """Wait until a condition holds and nothing has been written for a while.

    Raises:
        AssertionError: not in time; the message has the last failure.
    """
    loop = asyncio.get_running_loop()
    versions: Mapping[str, str] = {}
    since = loop.time()

    async def is_at_rest() -> Snapshot:
        nonlocal versions, since
        seen = await Snapshot.of(stage)
        if seen.versions != versions:
            versions, since = seen.versions, loop.time()
        assert reached(seen)
        assert loop.time() - since > still, "it is still written to"
        return seen

    # Many plays read at the same time: shorter intervals would slow down admitq.
    return await eventually(is_at_rest, timeout=60, interval=min(1.0, still), what=what)


def obeys_laws(seen: Snapshot) -> bool:
    """Whether all laws of rest hold.

    Raises:
        AssertionError: some laws do not hold.
    """
    problems = find_violations(seen, format_time(time.time_ns()))
    assert not problems, problems
    return True


async def until_counted(installation: Installation, seen: Snapshot) -> None:
    """Wait until the metrics of a ClusterQueue equal its status."""
    metadata, status = seen.cluster_queue["metadata"], seen.cluster_queue["status"]

    async def counted() -> bool:
        for gauge, field in (
            ("reserving_active_workloads", "reservingWorkloads"),
            ("admitted_active_workloads", "admittedWorkloads"),
            ("pending_workloads", "pendingWorkloads"),
        ):
            found = await sum_of_series(installation, gauge, cluster_queue=metadata["name"])
            assert found == status.get(field, 0), f"{gauge} {found} and {field} {status.get(field, 0)}"
        return True

    await eventually(counted, what=f"metrics of {metadata['name']}", timeout=10)


# --- one write ------------------------------------------------------------------------------------


async def play(
    fresh_stage: FreshStage,
    row: Row,
    manner: Manner | None,
    reference: "asyncio.Future[dict[str, Any] | None] | None" = None,
) -> dict[str, Any]:
    """Play a row in its own namespace, and return the facts of its end.

    Args:
        fresh_stage: opens the namespace.
        row: what is played.
        manner: how the other program writes; None if admitq makes the write itself.
        reference: the facts of the reference play, or None if that failed. The play waits until its facts
            are the same.

    Raises:
        AssertionError: the play does not reach its end, or its end differs from the reference.
    """
    async with fresh_stage() as stage:
        await row.scene(stage)
        if manner is not None:
            name = (await written_workload(stage, row))["metadata"]["name"]
            await write(stage.client, stage.names, (stage.namespace, name), row.change, manner)
        elif row.cause is not None:
            await row.cause(stage)
        await row.then(stage)

        def reached(seen: Snapshot) -> bool:
            found = facts(seen, row.subject, stage.names)
            assert not (wrong := differences({key: found.get(key) for key in row.end}, row.end)), wrong
            return obeys_laws(seen)

        end = await at_rest(stage, reached, what="the end of the row")
        expected = None if reference is None else await reference

        async def is_like_reference() -> dict[str, Any]:
            found = facts(await Snapshot.of(stage), row.subject, stage.names)
            assert expected is None or not (wrong := differences(found, expected)), wrong
            return found

        return (
            facts(end, row.subject, stage.names)
            if expected is None
            else await eventually(
                is_like_reference, timeout=COUNTING_SECONDS, what="the facts of the reference"
            )
        )


async def play_all(fresh_stage: FreshStage, rows: Sequence[Row]) -> None:
    """Play rows in every manner, and compare each play with the first one of its row.

    Raises:
        AssertionError: some plays have another end or none.
    """
    slots = asyncio.Semaphore(PLAYS_AT_ONCE)
    references: dict[str, asyncio.Future[dict[str, Any] | None]] = {}

    async def limited(row: Row, manner: Manner | None) -> None:
        # The first play of a row is the reference; the others wait for it.
        is_reference = row.name not in references
        reference = references.setdefault(row.name, asyncio.get_running_loop().create_future())
        end: dict[str, Any] | None = None
        try:
            async with slots:
                end = await play(fresh_stage, row, manner, None if is_reference else reference)
        finally:
            if is_reference:
                reference.set_result(end)

    casts = [(row, by) for row in rows for by in ((None,) if row.cause else ()) + row.manners]
    plays = await asyncio.gather(*(limited(row, by) for row, by in casts), return_exceptions=True)
    wrong = [
        f"{row} by {manner or 'admitq itself'}: {end}"
        for (row, manner), end in zip(casts, plays, strict=True)
        if isinstance(end, BaseException)
    ]
    assert not wrong, "\n".join(wrong)


def alternate_manners(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one of their manners, by turns; two if admitq does not make the write itself."""
    return [
        replace(row, manners=row.manners[number % step :: step] or row.manners)
        for number, row in enumerate(rows)
        for step in [4 if row.cause else 2]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("topic", ROWS)
async def test_e_writes_of_another_program_lead_to_the_same_end_state(
    fresh_stage: FreshStage, topic: str
) -> None:
    await play_all(fresh_stage, alternate_manners(ROWS[topic]))


@pytest.mark.release
@pytest.mark.parametrize("topic", ROWS)
async def test_e_writes_in_every_manner_lead_to_the_same_end_state(
    fresh_stage: FreshStage, topic: str
) -> None:
    await play_all(fresh_stage, ROWS[topic])


async def test_objects_of_a_failing_story_are_deleted(fresh_stage: FreshStage) -> None:
    opened: list[Stage] = []

    async def story() -> None:
        async with fresh_stage() as stage:
            opened.append(stage)
            await stage.flavor()
            raise AssertionError("the story fails")

    with pytest.raises(AssertionError, match="the story fails"):
        await story()
    [stage] = opened
    await stage.until_gone(stage.kinds.resource_flavors, stage.own("f"))


# --- sequences of writes --------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomWrite:
    """One write of a random sequence."""

    change: str
    """The name of the row with the change."""
    subject: str
    manner: Manner
    settles: bool
    """Whether the next write waits until admitq has written the consequences of this one."""

    def __str__(self) -> str:
        return f"{self.change} of {self.subject} by {self.manner}{', settles' if self.settles else ''}"

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:
        """Print one line in a failing example of Hypothesis."""
        printer.text(str(self))


@st.composite
def random_writes(draw: st.DrawFn) -> RandomWrite:
    """Draw the change of any row, of any subject, in any manner."""
    return RandomWrite(
        change=draw(st.sampled_from(sorted(DRAWN))),
        subject=draw(st.sampled_from(SUBJECTS)),
        manner=draw(st.sampled_from(Manner)),
        settles=draw(st.booleans()),
    )


PLAYS: Final = st.lists(random_writes(), min_size=8, max_size=12)
SETS_OF_PLAYS: Final = st.lists(PLAYS, min_size=PLAYS_OF_AN_EXAMPLE, max_size=PLAYS_OF_AN_EXAMPLE).filter(
    lambda plays: len(set(map(tuple, plays))) == len(plays)
)
"""Different plays: the first example of Hypothesis, the simplest play many times over, does not count."""


async def play_random(
    fresh_stage: FreshStage, installation: Installation, writes: Sequence[RandomWrite]
) -> None:
    """Play a sequence of writes on a few Workloads that share a ClusterQueue.

    Raises:
        AssertionError: at rest a law does not hold; the message has the writes.
    """
    made: list[str] = []
    async with fresh_stage() as stage:
        await workload_scenes.priority_class(stage)
        await stage.queues(cpu=3)
        for subject in SUBJECTS:
            if subject.startswith(workload_scenes.ALONE):
                await workload_scenes.workload(stage, subject)
            else:
                await stage.job(subject)
                await stage.until_workload_exists(subject)
        try:
            for one in writes:
                made.append(await make_random_write(stage, one))
                if one.settles:
                    await at_rest(stage, lambda _: True, what="a pause", still=SETTLING_SECONDS)
            end = await at_rest(stage, obeys_laws, what="rest")
            await until_counted(installation, end)
        except AssertionError as error:
            raise AssertionError("\n  ".join([str(error), *made])) from error


async def make_random_write(stage: Stage, drawn: RandomWrite) -> str:
    """Make one random write, which the webhooks may refuse; return a description of the result."""
    name = (await subject_of(stage, drawn.subject))["metadata"]["name"]
    try:
        await write(stage.client, stage.names, (stage.namespace, name), DRAWN[drawn.change], drawn.manner)
    except ApiError as error:
        if not error.is_rejected:
            raise
        return f"{drawn}: refused: {error.message}"
    return str(drawn)


# Without Phase.shrink: each attempt to shorten a failing example takes as long as the example.
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plays=SETS_OF_PLAYS)
@pytest.mark.timeout(300 * EXAMPLES)
async def test_e_random_writes_of_another_program_keep_the_laws_at_rest(
    fresh_stage: FreshStage, admitq_running: Installation, plays: Sequence[Sequence[RandomWrite]]
) -> None:
    ends = await asyncio.gather(
        *(play_random(fresh_stage, admitq_running, one) for one in plays), return_exceptions=True
    )
    wrong = [repr(one) if not isinstance(one, AssertionError) else str(one) for one in ends if one]
    assert not wrong, "\n".join(wrong)
