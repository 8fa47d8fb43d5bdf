"""Fractions for tests with hypothesis.

``st.fractions`` builds a strategy for each fraction that it draws, which takes most of the time of a test.
"""

from fractions import Fraction

from hypothesis import strategies as st


def fractions(most: int, max_denominator: int) -> st.SearchStrategy[Fraction]:
    """Return all fractions from 0 to this number with denominators up to it; few enough to be listed."""
    return st.sampled_from(
        sorted(
            {
                Fraction(top, below)
                for below in range(1, max_denominator + 1)
                for top in range(most * below + 1)
            }
        )
    )


def ratios(least: int, most: int, denominators: int) -> st.SearchStrategy[Fraction]:
    """Fractions of two whole numbers: the first from these bounds, the second from 1 to this number."""
    return st.builds(Fraction, st.integers(least, most), st.integers(1, denominators))
