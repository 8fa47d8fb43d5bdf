"""The tables of wait states are complete, and no other transition is accepted."""

from collections.abc import Iterable
from itertools import product

import pytest

from admitq.core.waiting import wait_states
from admitq.core.waiting.order import Position
from admitq.core.waiting.pending import new_pending
from admitq.core.waiting.transitions import (
    HeldBack,
    ImpossibleTransition,
    WaitEvent,
    check_transition,
    ends_at,
)
from admitq.core.waiting.wait_states import (
    BLOCKING,
    EVENT_INTO_LANE_STATE,
    HELD_BACK,
    HOLDING_BACK,
    LANE_EVENTS,
    LANE_STATES,
    PARKED,
    WORKLOAD_EVENTS,
    WORKLOAD_STATES,
    Arriving,
    Backoff,
    Departed,
    FirstOfStrictQueue,
    InCycle,
    InvalidWorkload,
    LostInCycle,
    NamespaceNotSelected,
    Queued,
    QueueUnusable,
    Ready,
    RetryOnProgress,
    WaitingForPreemption,
    WaitingForQuota,
)
from tests.unit.core.pending_workloads import NO_FIT, workload

HEAD: Position = new_pending(workload("a")).position

TABLES = (
    pytest.param(LANE_EVENTS, LANE_STATES, id="lanes"),
    pytest.param(WORKLOAD_EVENTS, WORKLOAD_STATES, id="workloads"),
)

SAMPLES: dict[type, object] = {
    type(each): each
    for each in (
        Ready(),
        WaitingForQuota(NO_FIT, 0),
        RetryOnProgress(NO_FIT, 0),
        FirstOfStrictQueue(HEAD),
        WaitingForPreemption(HEAD),
        LostInCycle(HEAD),
        Arriving(),
        Queued(),
        InCycle(),
        Backoff(7),
        NamespaceNotSelected(),
        InvalidWorkload(),
        QueueUnusable(),
        Departed(),
    )
}
"""One value of each state."""


def _transitions(events: Iterable[WaitEvent]) -> list[tuple[type, type]]:
    return [pair for event in events for pair in event.next_kind.items()]


@pytest.mark.parametrize(("events", "states"), TABLES)
def test_events_have_transitions_between_states_of_their_table_only(
    events: tuple[WaitEvent, ...], states: tuple[type, ...]
) -> None:
    for event in events:
        assert event.next_kind, event.name
        assert {*event.next_kind, *event.next_kind.values()} <= set(states), event.name


def test_every_event_of_module_is_in_exactly_one_table() -> None:
    defined = [each for each in vars(wait_states).values() if isinstance(each, WaitEvent)]
    listed = (*LANE_EVENTS, *WORKLOAD_EVENTS)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(defined)


@pytest.mark.parametrize(("events", "_states"), TABLES)
def test_events_of_table_have_different_names(
    events: tuple[WaitEvent, ...], _states: tuple[type, ...]
) -> None:
    assert len({event.name for event in events}) == len(events)


@pytest.mark.parametrize(("events", "_states"), TABLES)
def test_events_of_table_have_a_sentence_as_meaning(
    events: tuple[WaitEvent, ...], _states: tuple[type, ...]
) -> None:
    assert all(event.meaning.endswith(".") for event in events)


@pytest.mark.parametrize(
    ("events", "states", "begins", "ends"),
    [
        pytest.param(LANE_EVENTS, LANE_STATES, set[type](), set[type](), id="lanes"),
        pytest.param(WORKLOAD_EVENTS, WORKLOAD_STATES, {Arriving}, {Departed}, id="workloads"),
    ],
)
def test_every_state_is_entered_and_left_by_some_event(
    events: tuple[WaitEvent, ...], states: tuple[type, ...], begins: set[type], ends: set[type]
) -> None:
    changes = [(state, target) for state, target in _transitions(events) if state is not target]
    assert {target for _, target in changes} == set(states) - begins
    assert {state for state, _ in changes} == set(states) - ends


@pytest.mark.parametrize(
    ("event", "states"),
    [
        pytest.param(event, states, id=event.name)
        for events, states in ((LANE_EVENTS, LANE_STATES), (WORKLOAD_EVENTS, WORKLOAD_STATES))
        for event in events
    ],
)
def test_transition_is_accepted_exactly_if_the_table_has_it(
    event: WaitEvent, states: tuple[type, ...]
) -> None:
    for state, target in product(states, states):
        former, after = SAMPLES[state], SAMPLES[target]
        if event.next_kind.get(state) is target:
            assert check_transition(event, former, after) is after
        else:
            expected = f"^{event.name}: {state.__name__} does not become "
            with pytest.raises(ImpossibleTransition, match=expected):
                check_transition(event, former, after)


def test_every_state_other_than_ready_begins_with_an_event_of_its_own() -> None:
    assert set(EVENT_INTO_LANE_STATE) == {*PARKED, *BLOCKING} == set(LANE_STATES) - {Ready}
    for state, event in EVENT_INTO_LANE_STATE.items():
        assert event.next_kind == {Ready: state}


def test_every_state_that_holds_back_begins_and_ends_with_an_event_of_its_own() -> None:
    assert tuple(HOLDING_BACK) == HELD_BACK
    for state, row in HOLDING_BACK.items():
        assert set(row.begins.next_kind.values()) == {state}
        assert row.ends.next_kind[state] is Queued
    events = {event for row in HOLDING_BACK.values() for event in (row.begins, row.ends)}
    assert len(events) == 2 * len(HELD_BACK)


@pytest.mark.parametrize(
    ("state", "in_strict_queue", "ends_with_change", "until"),
    [
        (Backoff(7), True, True, 7),
        (Backoff(None), True, True, None),
        (NamespaceNotSelected(), True, False, None),
        (InvalidWorkload(), False, True, None),
        (QueueUnusable(), False, False, None),
    ],
    ids=repr,
)
def test_held_back_state_has_properties_of_its_row(
    state: HeldBack, in_strict_queue: bool, ends_with_change: bool, until: int | None
) -> None:
    row = HOLDING_BACK[type(state)]
    assert (row.in_strict_queue, row.ends_with_change) == (in_strict_queue, ends_with_change)
    assert ends_at(state) == until


def test_queued_state_has_no_instant_at_which_it_ends() -> None:
    assert ends_at(Queued()) is None


def test_samples_have_every_state() -> None:
    assert set(SAMPLES) == {*LANE_STATES, *WORKLOAD_STATES}
