from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.promises import distance, feed
from tests.reference import random_ids
from tests.shapes import SHAPES, layers
from tests.tiny import tiny_config, tiny_model
from transformer.cache import BLOCK, KVCache

WINDOWED = tiny_config(layers=layers({"window": 5}, {}))


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def test_room_comes_in_blocks_and_a_window_keeps_only_itself_and_a_step() -> None:
    cache = KVCache(WINDOWED, 2, capacity=1, step=3)
    assert [k.shape for k in cache.keys] == [(2, 2, 8, 8), (2, 2, BLOCK, 8)]
    cache.reserve(BLOCK + 1)
    assert [k.shape[2] for k in cache.values] == [8, 2 * BLOCK]
    cache.reserve(1)
    assert [k.shape[2] for k in cache.values] == [8, 2 * BLOCK]


def test_growing_keeps_what_is_there() -> None:
    model, ids = tiny_model(WINDOWED), random_ids(1, BLOCK + 40)
    cache = KVCache(WINDOWED, 1, capacity=1, step=64)
    assert distance(feed(model, cache, ids, [64]), model(ids)).kept
    assert cache.keys[1].shape[2] == 2 * BLOCK


def test_unused_slots_never_reach_the_result() -> None:
    """Rows of different lengths share one matrix; what memory held before must not matter, NaN least of all."""
    model, ids = tiny_model(WINDOWED), random_ids(2, 12)
    cache = KVCache(WINDOWED, 2, step=8)
    model(ids[:1, :2], cache.rows(0, 1))
    model(ids[1:, :8], cache.rows(1, 2))
    both = model(torch.stack((ids[0, 2:4], ids[1, 8:10])), cache)
    assert torch.isfinite(both).all()
    for memory in (*cache.keys, *cache.values):
        assert torch.isfinite(memory).all()


def test_cropping_further_than_a_window_remembers_is_refused() -> None:
    model, ids = tiny_model(WINDOWED), random_ids(1, 20)
    cache = KVCache(WINDOWED, 1, step=4)
    feed(model, cache, ids, [4])
    with pytest.raises(ValueError, match="cannot go back 5 tokens"):
        cache.crop(15)
    cache.crop(16)
    assert cache.lengths.tolist() == [16]
    model(ids[:, 16:17], cache)
    with pytest.raises(ValueError, match="cannot go back 5 tokens"):  # from where it has been, not from where it is
        cache.crop(15)


def test_without_windows_any_length_can_be_cropped_to() -> None:
    model, ids = tiny_model(), random_ids(2, 20)
    cache = KVCache(model.config, 2, step=20)
    feed(model, cache, ids, [20])
    cache.crop(3)
    assert distance(feed(model, cache, ids[:, 3:], [20]), model(ids)[:, 3:]).kept


def test_a_moved_row_goes_on_as_its_source_would() -> None:
    model, ids = tiny_model(WINDOWED), random_ids(2, 16)
    cache = KVCache(WINDOWED, 2, step=16)
    model(ids[:1, :9], cache.rows(0, 1))
    model(ids[1:, :4], cache.rows(1, 2))
    cache.move(0, 1)
    assert cache.lengths.tolist() == [9, 9]
    logits = model(ids[:1, 9:].expand(2, -1), cache)
    assert distance(logits, model(ids[:1])[:, 9:].expand(2, -1, -1)).kept


def test_a_reset_cache_is_as_good_as_new() -> None:
    model, ids = tiny_model(WINDOWED), random_ids(1, 20)
    cache = KVCache(WINDOWED, 1, step=4)
    feed(model, cache, ids, [4])
    cache.reset()
    assert distance(feed(model, cache, ids, [3]), model(ids)).kept


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_way_of_feeding_crossing_and_cropping_gives_the_same(data: st.DataObject) -> None:
    """Rows of any lengths, chunks of any sizes up to the step, and steps back in between."""
    config = data.draw(st.sampled_from([SHAPES["two windows"], SHAPES["alibi, six heads, window"], WINDOWED]))
    model = tiny_model(config).double()
    step = data.draw(st.integers(1, 6))
    rows = data.draw(st.integers(1, 3))
    sequences: list[list[int]] = [[] for _ in range(rows)]
    peak = 0
    cache = KVCache(config, rows, capacity=40, step=step, dtype=torch.float64)
    with torch.inference_mode():
        for row in range(rows):
            prompt = data.draw(st.lists(st.integers(0, 96), min_size=1, max_size=step))
            model(torch.tensor([prompt]), cache.rows(row, row + 1))
            sequences[row] += prompt
        for _ in range(data.draw(st.integers(1, 5))):
            new = data.draw(st.integers(1, step))
            ids = torch.tensor(data.draw(st.lists(st.integers(0, 96), min_size=rows * new, max_size=rows * new)))
            logits = model(ids.view(rows, new), cache)
            for row, tokens in enumerate(ids.view(rows, new).tolist()):
                sequences[row] += tokens
                bare = model(torch.tensor([sequences[row]]))[:, -new:]
                assert distance(logits[row : row + 1], bare).kept
            peak = max(peak, *map(len, sequences))
            if data.draw(st.booleans()):
                length = data.draw(st.integers(max(1, peak - step), peak))
                cache.crop(length)
                sequences = [tokens[:length] for tokens in sequences]
