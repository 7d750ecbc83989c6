"""The embedded model: what is shipped is what everybody can load, and what the commands use by default."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.process import tfm
from weights.load import EMBEDDED, Loaded, load

FABLE = EMBEDDED / "fable"


@pytest.fixture(scope="module")
def fable() -> Loaded:
    return load("fable")


def test_transformers_writes_the_same_story(fable: Loaded) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(FABLE, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(FABLE)("Once upon a time", return_tensors="pt").input_ids
    assert ids[0].tolist() == fable.tokenizer.encode("Once upon a time").ids  # nothing is added
    story = theirs.generate(ids, do_sample=False, max_new_tokens=40)
    with torch.no_grad():
        logits = fable.model(story[:, :-1])
        torch.testing.assert_close(logits, theirs(story[:, :-1]).logits, rtol=0, atol=1e-4)
    assert logits[0, ids.shape[1] - 1 :].argmax(-1).tolist() == story[0, ids.shape[1] :].tolist()


def test_documents_are_parted_by_the_token_that_begins_and_ends_them(fable: Loaded) -> None:
    assert fable.checkpoint.values["bos_token_id"] == fable.tokenizer.id("<|endoftext|>")
    assert fable.eos == {fable.tokenizer.id("<|endoftext|>")}


def test_it_fits_into_the_wheel() -> None:
    assert sum(file.stat().st_size for file in FABLE.iterdir()) < 25e6
    assert (FABLE / "README.md").exists()


def test_it_tells_a_story_by_default() -> None:
    run = tfm("generate", "Once upon a time", "-n", "30", "--seed", "1")
    assert run.code == 0 and len(run.out.split()) > 10
    assert b"fable" in tfm("models").out


def test_it_has_read_simple_stories(fable: Loaded) -> None:
    """A story of our own that it has not seen: a model that has learnt nothing needs 12 bits a token."""
    story = (
        "Once upon a time there was a little boy named Tom. Tom had a red kite. One windy day he took his kite to "
        "the park. The wind was so strong that the kite flew high up into the sky. Tom was very happy. "
    )
    ids = torch.tensor([[0, *fable.tokenizer.encode(story).ids]])
    with torch.no_grad():
        logprobs = fable.model(ids[:, :-1])[0].log_softmax(-1)
    nats = -logprobs.gather(1, ids[0, 1:, None]).mean()
    assert nats / torch.log(torch.tensor(2.0)) < 4
