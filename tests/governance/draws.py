"""What the state machines draw: amounts so small and limits so few that they meet often.

An amount is (tokens, picodollars, loops, tool calls).
"""

from __future__ import annotations

from hypothesis import strategies as st

from kairo_team.budget import HaltReason
from tests.governance.naive import UNLIMITED, ZERO

amount = st.integers(0, 12)
amounts = st.tuples(amount, amount, st.just(0), st.integers(0, 4))
truth = st.integers(0, 25)
truths = st.one_of(amounts, st.tuples(truth, truth, st.just(0), st.integers(0, 6)))
overshoots = st.tuples(st.integers(13, 80), truth, st.just(0), st.integers(0, 6))
# Few different limits, so that a child's and its parent's are often used up together.
limit = st.one_of(st.none(), st.sampled_from([0, 10, 20, 40]), st.integers(0, 60))
limits = st.one_of(st.just(UNLIMITED), st.tuples(limit, limit, limit, limit))
most = st.one_of(st.none(), st.sampled_from([10, 40, 100]), st.integers(0, 120))
most_of_all = st.tuples(most, most, most, most)
guarantees = st.one_of(st.none(), st.just(ZERO), st.tuples(amount, amount, amount, amount))
shares = st.one_of(st.none(), st.integers(0, 9))
branches = st.lists(st.tuples(st.integers(0, 9), limits, guarantees, shares), max_size=6)
seconds = st.one_of(st.none(), st.none(), st.sampled_from([1000.0, 2000.0, 3000.0]))
restored = st.one_of(st.none(), st.none(), st.tuples(truth, truth, st.integers(0, 9), st.integers(0, 4)))
restored_halts = st.sampled_from([None] * 15 + [HaltReason.DOLLAR_BUDGET_EXCEEDED])
