"""Random durations.

Draws may use floats; the results are whole nanoseconds. Every purpose has its own random numbers, so that a
change of one class of workloads does not change the others.
"""

import math
import random
from collections.abc import Callable

from admitq.simulator.schema import Distribution, Nanoseconds

Draw = Callable[[random.Random], Nanoseconds]
"""A function that draws one duration."""


def create_random_stream(seed: int, *purpose: str) -> random.Random:
    """Return a random number generator that depends only on the seed and the purpose."""
    return random.Random("/".join((str(seed), *purpose)))  # noqa: S311 not a secret


def _shape(of: Distribution) -> Draw:
    if of.uniform is not None:
        low, high = of.uniform.min, of.uniform.max
        return lambda chance: chance.randint(low, high)
    if of.exponential is not None:
        rate = 1 / of.exponential.mean
        return lambda chance: round(chance.expovariate(rate))
    if of.lognormal is not None:
        mu, sigma = math.log(of.lognormal.median), of.lognormal.sigma
        return lambda chance: round(chance.lognormvariate(mu, sigma))
    if of.weibull is not None:
        scale, shape = of.weibull.scale, of.weibull.shape
        return lambda chance: round(chance.weibullvariate(scale, shape))
    constant = of.constant or 0
    return lambda _: constant


def create_sampler(of: Distribution) -> Draw:
    """Return a function that draws from a distribution, with its bounds and jitter."""
    shape, jitter = _shape(of), of.jitter
    least = of.at_least or 0
    most = of.at_most
    if of.constant is not None and not jitter:
        constant = max(least, of.constant if most is None else min(most, of.constant))
        return lambda _: constant

    def draw(chance: random.Random) -> Nanoseconds:
        drawn = shape(chance)
        if jitter:
            drawn += round(drawn * jitter * chance.random())
        if most is not None and drawn > most:
            drawn = most
        return max(drawn, least)

    return draw
