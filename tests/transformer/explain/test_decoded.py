"""What is kept while decoding is what was decoded, and what one pass over the whole gives."""

from __future__ import annotations

import pytest
import torch

from tests.transformer.explain.zoo import IDS, ZOO, zoo_model
from tests.transformer.test_recording import Everything
from transformer.cache import KVCache
from transformer.explain.decoded import Decoded
from transformer.explain.reading import Reads
from transformer.generate import Request, generate
from transformer.recording import Recorder
from transformer.sampling import Sampling


@pytest.mark.parametrize("name", ZOO)
def test_rows_are_those_behind_which_tokens_were_chosen(name: str) -> None:
    model, prompt = zoo_model(name), IDS[:6]
    request = Request(prompt, Sampling(temperature=0.0), limit=9, logprobs=0)
    decoded = Decoded(model, range(5, 15))
    cache = KVCache(model.config, step=4, dtype=torch.float64)  # rings of the windowed layers wrap
    tokens = list(generate(model, cache, request, Recorder(decoded)))
    ids = [*prompt, *request.text]
    everything = Everything(model.config, len(ids))
    with torch.inference_mode():
        model(torch.tensor([ids]), tap=Recorder(everything))
        for row, token in enumerate(tokens, start=5):
            reads = Reads(model.config, len(ids), row)
            decoded.show(row, reads)
            assert (reads.weights - everything.weights[:, :, row, : row + 1]).abs().max() <= 1e-6  # kept in fp32
            logp = model.logits(decoded.ends[row][None, None])[0, 0].log_softmax(0)
            assert int(logp.argmax()) == token.id
            assert float(logp[token.id]) == pytest.approx(token.logprob, abs=1e-12)


def test_only_the_rows_asked_for_are_kept() -> None:
    model = zoo_model("pre")
    decoded = Decoded(model, range(7, 8))
    request = Request(IDS[:6], Sampling(temperature=0.0), limit=5)
    list(generate(model, KVCache(model.config, dtype=torch.float64), request, Recorder(decoded)))
    assert [len(rows) for rows in decoded.kept.values()] == [len(model.config.layers)]
    assert decoded.kept[7][0].weights.shape == (model.config.heads, 1, 8) and set(decoded.ends) == {7}
