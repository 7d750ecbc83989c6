from __future__ import annotations

import torch

from transformer.explain.difference import Pair, align, changes, first_difference


def test_align_pairs_the_same_and_the_exchanged() -> None:
    a, b = ["the", "cat", "sat", "on", "it"], ["the", "dog", "sat", "it"]
    assert align(a, b) == [Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(4, 3)]
    assert align(a, a) == [Pair(i, i) for i in range(5)]
    assert align(["x"], ["y", "z"]) == []


def test_first_difference() -> None:
    assert first_difference("abc", "abd") == 2
    assert first_difference("abc", "abcd") == 3
    assert first_difference("abc", "abc") is None
    assert first_difference("x", "y") == 0


def test_changes_are_sorted_by_size_with_their_place() -> None:
    a, b = torch.zeros(2, 2, 2, 3), torch.zeros(2, 2, 2, 3)
    a[1, 0, 1, 2], b[0, 1, 0, 1], a[0, 0, 0, 0], b[0, 0, 0, 0] = 0.5, 0.25, 0.5, 0.5
    queries, keys = [Pair(3, 4), Pair(5, 5)], [Pair(0, 0), Pair(1, 1), Pair(2, 3)]
    first, second = changes(a, b, queries, keys, top=2)
    assert (first.layer, first.head, first.query, first.key) == (1, 0, Pair(5, 5), Pair(2, 3))
    assert first.difference == -0.5 and (first.a, first.b) == (0.5, 0)
    assert (second.layer, second.head, second.difference) == (0, 1, 0.25)
    (mean,) = changes(a, b, queries, keys, top=1, mean=True)
    assert mean.layer is None and mean.head is None and mean.difference == -0.125
