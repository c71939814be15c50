# SPDX-License-Identifier: MIT
"""Rates that were counted."""

import math


def interval(k, n):
    """Clopper and Pearson's interval of 95 % of a rate that was seen k times in n, in %: by bisection of the binomial tail."""
    def at_most(k, share):  # chance of k or fewer
        return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k + 1))
    def solve(wanted, k):
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(k, middle) > wanted else (low, middle)
        return 100 * low
    return [round(solve(0.975, k - 1), 2) if k else 0.0, round(solve(0.025, k), 2) if k < n else 100.0] if n else [0.0, 100.0]
