from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.text import story, write_chats, write_stories
from tests.tiny import write_tiny
from transformer.errors import InputError
from transformer.shape import choose, decoder
from weights.base import Base, base_of, fresh_base
from weights.corpus import Corpus, encode_corpus, open_corpus
from weights.sources import Source
from weights.vocabulary import has_conversations, token_bytes, train_tokenizer


def encode(directory: Path, *files: Path, vocab_size: int = 400, base: Base | None = None) -> tuple[Corpus, Base]:
    sources = [Source(file.stem, (file,)) for file in files]
    if base is None:
        backend = train_tokenizer(sources, vocab_size, lambda done: None)
        config = decoder(choose([], {"vocab_size": backend.get_vocab_size(), "width": 32}))
        base = fresh_base(backend, config, has_conversations(sources))
    directory.mkdir()
    encode_corpus(sources, base, directory, lambda done: None)
    return open_corpus(directory, base), base


def words(base: Base, ids: torch.Tensor) -> str:
    return base.tokenizer.backend.decode(ids.tolist(), skip_special_tokens=False)


def test_every_document_is_encoded_once_on_one_side(tmp_path: Path) -> None:
    corpus, base = encode(tmp_path / "data", write_stories(tmp_path / "a.txt", 80))
    sides = [words(base, tokens.ids.long()).split("<|endoftext|>")[1:] for tokens in (corpus.train, corpus.valid)]
    assert sorted(sides[0] + sides[1]) == sorted(story(i) for i in range(80))
    assert 2 <= len(sides[1]) <= 20
    held_out = corpus.sources["a"].held_out()
    assert [words(base, corpus.valid.ids[slice(*span)].long()) for span in held_out] == [
        "<|endoftext|>" + text for text in sides[1]
    ]


def test_sources_lie_one_after_the_other_and_copies_on_the_same_side(tmp_path: Path) -> None:
    one, two = write_stories(tmp_path / "one.txt", 60), write_stories(tmp_path / "two.txt", 60)
    corpus, _ = encode(tmp_path / "data", one, two)
    first, second = corpus.sources["one"], corpus.sources["two"]
    assert first.train.stop == second.train.start and second.train.stop == len(corpus.train.ids)
    assert first.valid.stop == second.valid.start and second.valid.stop == len(corpus.valid.ids)
    assert torch.equal(corpus.valid.ids[slice(*first.valid)], corpus.valid.ids[slice(*second.valid)])


def test_the_bytes_of_tokens_add_up_to_the_text(tmp_path: Path) -> None:
    text = "Größe 🙂 naïve <|endoftext|> inline\tand  more\n" * 3
    path = tmp_path / "a.txt"
    path.write_text(text)
    corpus, _ = encode(tmp_path / "data", path)
    ids = corpus.train.ids.long()
    assert corpus.token_bytes[ids].sum() == len(text.encode()) - 1  # the last newline only ends a line
    assert (ids == 0).sum() == 1  # the separator inside a line is mere text


def test_few_documents_still_leave_one_to_hold_out(tmp_path: Path) -> None:
    for count, held_out in ((1, 0), (2, 1), (3, 1)):
        corpus, _ = encode(tmp_path / f"data{count}", write_stories(tmp_path / f"{count}.txt", count))
        documents = corpus.sources[str(count)].documents
        assert (len(documents) >= held_out) and len(corpus.train.ids) > 0
        if not held_out:
            assert not documents


def test_a_long_document_goes_on_behind_a_part_that_was_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weights.documents.PART", 200)
    monkeypatch.setattr("weights.documents.SLACK", 50)
    path = tmp_path / "book.txt"
    text = " ".join(f"word{i}" for i in range(2000))
    path.write_text(text)
    corpus, base = encode(tmp_path / "data", path)
    train = words(base, corpus.train.ids.long()).split("<|endoftext|>")[1:]
    valid = words(base, corpus.valid.ids.long()).split("<|endoftext|>")[1:]
    assert valid and 1 < len(train) <= len(valid) + 1  # begun anew only behind a gap
    assert all(part in text for part in train + valid)
    assert sum(map(len, train + valid)) == len(text)


def test_only_answers_are_learnt(tmp_path: Path) -> None:
    corpus, base = encode(tmp_path / "data", write_chats(tmp_path / "chat.jsonl"))
    assert corpus.train.learnt is not None
    ids, learnt = corpus.train.ids.long(), corpus.train.learnt
    answers = words(base, ids[learnt]).split("<|im_end|>\n")[:-1]
    assert answers and all(a.startswith(("Near the ", "To ")) for a in answers)
    assert "Near the" not in words(base, ids[~learnt]) and "user\nWhere does" in words(base, ids[~learnt])
    assert base.files["generation_config.json"]["eos_token_id"] == [0, base.tokenizer.id("<|im_end|>")]


def test_text_and_conversations_mix(tmp_path: Path) -> None:
    corpus, _ = encode(tmp_path / "data", write_stories(tmp_path / "a.txt"), write_chats(tmp_path / "b.jsonl"))
    assert corpus.train.learnt is not None
    text, chat = (corpus.train.learnt[slice(*corpus.sources[name].train)] for name in "ab")
    assert bool(text.all()) and 0 < chat.float().mean() < 0.7


def test_a_model_brings_its_own_marks(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model")
    base = base_of(model)
    assert (base.begin, base.end) == ((0,), (2,))
    corpus, _ = encode(tmp_path / "data", write_stories(tmp_path / "a.txt", 30), base=base)
    ids = corpus.train.ids.long()
    assert (ids == 0).sum() == (ids == 2).sum() > 20
    assert ids[0] == 0 and ids[-1] == 2


def test_a_model_without_template_cannot_learn_conversations(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "model")
    (model / "tokenizer_config.json").write_text('{"bos_token": "<|endoftext|>"}')
    with pytest.raises(InputError, match=r"chat.jsonl: the model to go on with has no chat template"):
        encode(tmp_path / "data", write_chats(tmp_path / "chat.jsonl"), base=base_of(model))


def test_a_tokenizer_is_the_same_every_time_and_knows_every_byte(tmp_path: Path) -> None:
    sources = [Source("a", (write_stories(tmp_path / "a.txt"),))]
    one, other = (train_tokenizer(sources, 350, lambda done: None) for _ in range(2))
    assert one.to_str() == other.to_str() and one.get_vocab_size() == 350
    odd = "🙂 \x00 ß 我"
    assert one.decode(one.encode(odd).ids) == odd
    assert token_bytes(one, 350)[one.encode(odd).ids].sum() == len(odd.encode())


def test_the_vocabulary_suits_the_heavier_source(tmp_path: Path) -> None:
    """Of two equal amounts of text, what the model will read more of gets longer tokens."""
    texts = {"few": "aardvark zeppelin", "many": "quokka marzipan"}
    for name, words in texts.items():
        documents = (f"{words} {number} {words}\n<|endoftext|>\n" for number in range(400))
        (tmp_path / f"{name}.txt").write_text("".join(documents))
    sources = [Source(name, (tmp_path / f"{name}.txt",), {"few": 0.02, "many": 1.0}[name]) for name in texts]
    tokenizer = train_tokenizer(sources, 257 + 12, lambda done: None)
    assert len(tokenizer.encode(texts["many"]).ids) < len(tokenizer.encode(texts["few"]).ids) / 1.5


def test_small_texts_and_small_vocabularies(tmp_path: Path) -> None:
    sources = [Source("a", (write_stories(tmp_path / "a.txt", 1),))]
    assert train_tokenizer(sources, 5000, lambda done: None).get_vocab_size() < 400
    with pytest.raises(InputError, match=r"a vocabulary of 256 is too small: all bytes and <\|endoftext\|> need 257"):
        train_tokenizer(sources, 256, lambda done: None)
