"""The same laws over histories that hypothesis generates and shrinks."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.laws.history import Step, apply_step, create_player
from tests.laws.operations import OPERATIONS
from tests.laws.player import Player

SEEDS = st.integers(0, 2**20)
NAMES = [name for name, (_, weight) in OPERATIONS.items() for _ in range(weight)]


class Histories(RuleBasedStateMachine):
    """A state machine with the operations as rules."""

    player: Player

    @initialize(world=SEEDS)
    def create_world(self, world: int) -> None:
        self.player = create_player(world)

    @rule(name=st.sampled_from(NAMES), seed=SEEDS)
    def apply_operation(self, name: str, seed: int) -> None:
        apply_step(self.player, Step(name, seed))


class FurtherHistories(Histories):
    """Histories that are played before a release."""


SETTINGS = settings(
    max_examples=20,
    stateful_step_count=60,
    derandomize=True,
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
TestHistories = pytest.mark.slow(pytest.mark.timeout(900)(Histories.TestCase))
TestHistories.settings = SETTINGS
TestFurtherHistories = pytest.mark.release(pytest.mark.timeout(1800)(FurtherHistories.TestCase))
TestFurtherHistories.settings = settings(SETTINGS, max_examples=100)
