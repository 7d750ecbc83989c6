"""--generated: write first, then explain prompt and answer as they were decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.request import Wish, prepare
from cli.subject import Subject, cells
from transformer.errors import InputError

if TYPE_CHECKING:
    from weights.load import Loaded

LENGTH = 32  # tokens to write, unless -n says how many: each becomes a row of a table


def generated(loaded: Loaded, prompt: str, wish: Wish, by_words: bool) -> Subject:
    """The prompt with what the model writes behind it."""
    from transformer import generate as engine
    from transformer.tokenizer import TextStream

    job = prepare(loaded, wish, prompt)
    for token in engine.generate(loaded.model, engine.new_cache(loaded.model), job.request):
        job.feed(token)
    written = [id for id in job.request.text if id not in loaded.eos]
    if not written:
        raise InputError("the model wrote nothing but an end of text: there is nothing to explain")
    given = list(job.request.prompt)
    spans = _spans(loaded, job.prompt, given)
    stream, at, waiting = TextStream(loaded.tokenizer, given), len(job.prompt), 0
    text = job.prompt
    for number, id in enumerate(written):
        piece = stream.feed(id) if number + 1 < len(written) else stream.feed(id) + stream.flush()
        waiting += 1
        if piece or number + 1 == len(written):  # tokens that only together make a character share its span
            spans += [(at, at + len(piece))] * waiting
            at, waiting = at + len(piece), 0
        text += piece
    return Subject(loaded, text, given + written, spans, cells(text, spans, by_words), len(given), job.request.horizon)


def _spans(loaded: Loaded, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Where the prompt's tokens stand; a chat prompt with guarded text is not encoded again the same way."""
    encoded = loaded.tokenizer.encode(text)
    if encoded.ids == ids:
        return list(encoded.spans)
    plain = loaded.tokenizer.backend.encode(text, add_special_tokens=False)
    return list(plain.offsets) if list(plain.ids) == ids else [(0, 0)] * len(ids)
