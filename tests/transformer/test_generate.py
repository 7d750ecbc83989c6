from __future__ import annotations

import pytest
import torch

from tests.tiny import tiny_config, tiny_model
from transformer.config import Layer, Rope
from transformer.errors import InputError
from transformer.generate import CHUNK, Request, generate, generate_many, new_cache, prefill
from transformer.sampling import Sampling

GREEDY = Sampling(temperature=0)
MODEL = tiny_model(tiny_config(context=4096))


def uncached(model: torch.nn.Module, prompt: list[int], count: int) -> list[int]:
    """The slow way: the whole text again for every token."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


def test_greedy_equals_the_slow_way() -> None:
    prompt = list(range(3, 40))
    tokens = [t.id for t in generate(MODEL, new_cache(MODEL), Request(prompt, GREEDY, 30))]
    assert tokens == uncached(MODEL, prompt, 30) and len(set(tokens)) > 8


def test_a_long_prompt_is_read_in_chunks_that_change_nothing() -> None:
    prompt = torch.randint(0, 320, (CHUNK * 2 + 77,), generator=torch.Generator().manual_seed(1)).tolist()
    steps: list[int] = []
    logits = prefill(MODEL, new_cache(MODEL, capacity=len(prompt)), prompt, progress=steps.append)
    torch.testing.assert_close(logits, MODEL(torch.tensor([prompt]))[0, -1], atol=1e-4, rtol=0)
    assert steps == [CHUNK, 2 * CHUNK, len(prompt)]


def test_it_ends_at_eos_and_gives_it_last() -> None:
    plain = [t.id for t in generate(MODEL, new_cache(MODEL), Request([5, 6], GREEDY, 20))]
    ended = generate(MODEL, new_cache(MODEL), Request([5, 6], GREEDY, 20, eos=frozenset([plain[7]])))
    assert [t.id for t in ended] == plain[: plain.index(plain[7]) + 1]


def test_log_probabilities_are_the_models_own() -> None:
    request = Request([5, 6], Sampling(temperature=2.0, top_k=3, repetition_penalty=3.0), 4, seed=1, logprobs=2)
    for token in generate(MODEL, new_cache(MODEL), request):
        ids = [5, 6, *request.text[:-1]]
        own = MODEL(torch.tensor([ids]))[0, -1].double().log_softmax(0)
        assert token.logprob == pytest.approx(float(own[token.id]), abs=1e-4)
        assert [i for i, _ in token.top] == own.topk(2).indices.tolist()


def test_many_rows_give_what_each_gives_alone() -> None:
    random = torch.Generator().manual_seed(0)
    requests = [
        Request(torch.randint(3, 320, (1 + 7 * i % 23,), generator=random).tolist(), Sampling(), 5 + i % 9, seed=i)
        for i in range(17)
    ]
    waiting = iter(requests)
    done = list(generate_many(MODEL, new_cache(MODEL, rows=4), lambda wait: next(waiting, None)))
    assert len(done) == sum(len(r.text) for r in requests)
    for i, request in enumerate(requests):
        alone = Request(request.prompt, Sampling(), request.limit, seed=i)
        assert [t.id for t in generate(MODEL, new_cache(MODEL), alone)] == request.text


def test_waiting_prompts_are_read_in_as_few_passes_as_they_fit_into(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[int, ...]] = []
    hidden = MODEL.hidden
    monkeypatch.setattr(MODEL, "hidden", lambda ids, *rest: passes.append(tuple(ids.shape)) or hidden(ids, *rest))
    lengths = (9, CHUNK // 2, 3, CHUNK + 1, 200, 8)
    requests = [Request([3 + n % 300] * n, GREEDY, 2) for n in lengths]
    waiting = iter(requests)
    list(generate_many(MODEL, new_cache(MODEL, rows=6), lambda wait: next(waiting, None)))
    assert passes == [(3, 9), (2, CHUNK // 2), (1, CHUNK), (1, 1), (6, 1)]
    assert [r.text for r in requests] == [uncached(MODEL, list(r.prompt), 2) for r in requests]


def test_many_rows_with_windows_that_wrap() -> None:
    layers = tuple(Layer(mlp_width=48, attention_scale=8**-0.5, rope=Rope(dim=8), window=w) for w in (6, None, 6))
    model = tiny_model(tiny_config(layers=layers, context=4096))
    requests = [Request([3 + i] * (4 + 5 * i), GREEDY, 40) for i in range(5)]
    waiting = iter(requests)
    list(generate_many(model, new_cache(model, rows=3), lambda wait: next(waiting, None)))
    for request in requests:
        assert request.text == uncached(model, list(request.prompt), 40)


def test_a_caller_can_stop_a_row() -> None:
    requests = [Request([5], GREEDY, 50), Request([6], GREEDY, 10)]
    waiting = iter(requests)
    for request, _ in generate_many(MODEL, new_cache(MODEL, rows=2), lambda wait: next(waiting, None)):
        if request is requests[0] and len(request.text) == 3:
            request.done = True
    assert [len(r.text) for r in requests] == [3, 10]


def test_damaged_weights_are_noticed() -> None:
    model = tiny_model()
    model.final_norm.weight[0] = float("nan")  # type: ignore[index]
    with pytest.raises(InputError, match="not finite"):
        list(generate(model, new_cache(model), Request([5], GREEDY, 3)))
