"""The table of event handlers."""

from typing import get_args

from admitq.core.events import Event
from admitq.core.handlers import HANDLERS


def test_every_type_of_event_has_a_handler() -> None:
    assert set(HANDLERS) == set(get_args(Event))
