"""Fractions for tests with hypothesis.

``st.fractions`` builds a strategy for each fraction that it draws, which takes most of the time of a test.
"""

from fractions import Fraction

from hypothesis import strategies as st


def fractions(most: int, max_denominator: int) -> st.SearchStrategy[Fraction]:
    """Draw fractions from 0 to ``most`` with denominators up to a maximum. The strategy lists all of them."""
    return st.sampled_from(
        sorted(
            {
                Fraction(numerator, denominator)
                for denominator in range(1, max_denominator + 1)
                for numerator in range(most * denominator + 1)
            }
        )
    )


def ratios(least: int, most: int, denominators: int) -> st.SearchStrategy[Fraction]:
    """Draw fractions: the numerator between two bounds, the denominator from 1 to ``denominators``."""
    return st.builds(Fraction, st.integers(least, most), st.integers(1, denominators))
