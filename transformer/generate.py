"""Prefill and decode: a prompt's ids in, one id after the other out. Knows no text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.cache import KVCache
from transformer.errors import InputError
from transformer.lookup import Lookup
from transformer.model import Transformer
from transformer.sampling import Sampling
from transformer.tap import FUSED, Tap

CHUNK = 512  # prompt tokens a pass: no n² memory, and each matrix is still read for many tokens at once


class Token(NamedTuple):
    id: int
    logprob: float | None = None  # the model's own, before any sampler
    top: tuple[tuple[int, float], ...] = ()  # the likeliest ids with theirs


@dataclass
class Request:
    """One sequence to continue, and how far it has come."""

    prompt: Sequence[int]
    sampling: Sampling
    limit: int  # tokens to write, at most
    eos: frozenset[int] = frozenset()
    seed: int = 0
    logprobs: int | None = None  # report this many likeliest ids with each token
    text: list[int] = field(default_factory=list)
    done: bool = False  # the caller may set it, to stop early

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.seed)

    @property
    def horizon(self) -> int:
        return len(self.prompt) + self.limit

    def take(self, logits: Tensor) -> Token:
        """Chooses the next id from logits (V,)."""
        if not all(math.isfinite(bound) for bound in logits.aminmax()):
            raise InputError("the model's logits are not finite: its weights are damaged or too large for the dtype")
        id = self.sampling.choose(logits, self.prompt, self.text, self.random)
        self.text.append(id)
        self.done = id in self.eos or len(self.text) >= self.limit
        if self.logprobs is None:
            return Token(id)
        logprobs = logits.double().log_softmax(0)
        values, ids = logprobs.topk(min(self.logprobs, len(logprobs)))
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        return Token(id, float(logprobs[id]), top)


def new_cache(model: Transformer, rows: int = 1, capacity: int = CHUNK) -> KVCache:
    return KVCache(model.config, rows, capacity=capacity, step=CHUNK, dtype=model.dtype, device=model.device)


@torch.inference_mode()
def prefill(
    model: Transformer,
    cache: KVCache,
    ids: Sequence[int],
    tap: Tap = FUSED,
    progress: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Reads a prompt into one row of a cache; the logits (V,) behind it."""
    device = model.device
    for start in range(0, len(ids), CHUNK):
        x = model.hidden(torch.tensor([ids[start : start + CHUNK]], device=device), cache, tap)
        progress(min(start + CHUNK, len(ids)))
    return model.logits(x[:, -1:])[0, -1]


@torch.inference_mode()
def prefill_together(model: Transformer, cache: KVCache, prompts: list[Sequence[int]]) -> Tensor:
    """Reads a prompt into each row of an empty cache, in one pass; the logits (B, V) behind them. Shorter prompts are
    filled up at their ends, where none of their own tokens looks, and cropped again."""
    lengths = torch.tensor([len(ids) for ids in prompts])
    padded = pad_sequence([torch.tensor(ids) for ids in prompts], batch_first=True)  # (B, T)
    x = model.hidden(padded.to(model.device), cache)
    cache.crop(lengths)
    return model.logits(x[torch.arange(len(prompts)), lengths - 1])


@torch.inference_mode()
def step(model: Transformer, cache: KVCache, ids: Sequence[int], tap: Tap = FUSED) -> Tensor:
    """One more id for each row of the cache; the logits (B, V) behind them."""
    x = model.hidden(torch.tensor([[i] for i in ids], device=model.device), cache, tap)
    return model.logits(x)[:, -1]


@torch.inference_mode()
def read(model: Transformer, cache: KVCache, ids: Sequence[int], tap: Tap = FUSED) -> Tensor:
    """Some ids behind the one row of the cache; the logits (T, V) behind each of them."""
    return model(torch.tensor([ids], device=model.device), cache, tap)[0]


def generate(
    model: Transformer,
    cache: KVCache,
    request: Request,
    tap: Tap = FUSED,
    progress: Callable[[int], None] = lambda done: None,
    lookup: int = 0,
) -> Iterator[Token]:
    """Continues one sequence in an empty cache of one row. An EOS is the last token given.

    With `lookup`, up to that many tokens are guessed from the context and read in one pass with the last one. Each
    token is still chosen from the logits behind all before it, so the text is the same; a right guess saves a pass."""
    cache.horizons[0] = request.horizon
    cache.reserve(len(request.prompt))
    context, guesses = Lookup(request.prompt, lookup), list[int]()
    rows = prefill(model, cache, request.prompt, tap, progress)[None]
    while True:
        for logits, guess in zip(rows, [*guesses, None], strict=True):
            yield (token := request.take(logits))
            if request.done:
                return
            context.add(token.id)
            if token.id != guess:
                break  # the logits behind a wrong guess are worth nothing
        written = len(request.prompt) + len(request.text)
        cache.crop(written - 1)
        guesses = context.guess()[: request.horizon - written - 1]
        _make_room(cache, written + len(guesses), request.horizon)
        rows = read(model, cache, [token.id, *guesses], tap)


def generate_many(
    model: Transformer, cache: KVCache, next_request: Callable[[bool], Request | None]
) -> Iterator[tuple[Request, Token]]:
    """Continues many sequences at once; whenever one is done, the next request takes its row.

    `next_request(wait)` gives a request, or None if there is none: for now, or for good if it was to wait.
    """
    active: list[Request] = []
    while True:
        arrived: list[Request] = []
        while len(active) + len(arrived) < len(cache.lengths):
            if (request := next_request(not active and not arrived)) is None:
                break
            arrived.append(request)
        if not active and not arrived:
            return
        if active:
            _make_room(cache, int(cache.lengths[: len(active)].max()) + 1, max(r.horizon for r in active))
            logits = step(model, cache.rows(0, len(active)), [r.text[-1] for r in active])
            yield from _taken(active, logits)
        for group in _groups(arrived):
            rows = slice(len(active), len(active) + len(group))
            active += group
            yield from _taken(group, _join(model, cache, rows, group))
        for slot in reversed(range(len(active))):
            if active[slot].done:
                last = active.pop()
                if slot < len(active):
                    active[slot] = last
                    cache.move(len(active), slot)


def _taken(requests: list[Request], logits: Tensor) -> Iterator[tuple[Request, Token]]:
    for request, row in zip(requests, logits, strict=True):
        if not request.done:
            yield request, request.take(row)


def _groups(requests: list[Request]) -> Iterator[list[Request]]:
    """Prompts of about the same length, as many as one pass can read."""
    group: list[Request] = []
    for request in sorted(requests, key=lambda request: len(request.prompt)):
        if group and len(request.prompt) * (len(group) + 1) > CHUNK:
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _join(model: Transformer, cache: KVCache, rows: slice, requests: list[Request]) -> Tensor:
    """Reads the prompts of new requests into rows of their own; the logits (B, V) behind them."""
    _make_room(cache, max(len(r.prompt) for r in requests), max(r.horizon for r in requests))
    part = cache.rows(rows.start, rows.stop)
    part.reset()
    part.horizons.copy_(torch.tensor([r.horizon for r in requests]))
    if len(requests) == 1:
        return prefill(model, part, requests[0].prompt)[None]
    return prefill_together(model, part, [r.prompt for r in requests])


def _make_room(cache: KVCache, needed: int, horizon: int) -> None:
    """Doubles when full, so that a long run copies little; not beyond what the sequence can need."""
    if needed > cache.capacity:
        cache.reserve(max(needed, min(2 * cache.capacity, horizon)))
