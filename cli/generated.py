"""--generated: write first, then explain prompt and answer as they were decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.request import Wish, prepare
from cli.subject import Subject, cells
from transformer.errors import InputError
from transformer.explain.decoded import Decoded
from transformer.recording import Recorder

if TYPE_CHECKING:
    from transformer.generate import Request
    from weights.load import Loaded

LENGTH = 32  # tokens to write, unless -n says how many: each becomes a row of a table


def generated(loaded: Loaded, prompt: str, wish: Wish, by_words: bool, at: int | None) -> Subject:
    """The prompt with what the model writes behind it; the row behind which token `at` is chosen is kept."""
    from transformer import generate as engine
    from transformer.tap import FUSED
    from transformer.tokenizer import TextStream

    job = prepare(loaded, wish, prompt)
    decoded = None if at is None else Decoded(loaded.model, _rows(job.request, at))
    tap = FUSED if decoded is None else Recorder(decoded)
    for token in engine.generate(loaded.model, engine.new_cache(loaded.model), job.request, tap):
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
    shown = cells(text, spans, by_words)
    return Subject(loaded, text, given + written, spans, shown, len(given), job.request.horizon, decoded)


def _rows(request: Request, at: int) -> range:
    """The row behind which a token is chosen; all that may be it, if the token is counted from the end."""
    first = len(request.prompt) - 1
    return range(first, request.horizon) if at < 0 else range(first + at, first + at + 1)


def _spans(loaded: Loaded, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Where the prompt's tokens stand; a chat prompt with guarded text is not encoded again the same way."""
    encoded = loaded.tokenizer.encode(text)
    if encoded.ids == ids:
        return list(encoded.spans)
    plain = loaded.tokenizer.backend.encode(text, add_special_tokens=False)
    return list(plain.offsets) if list(plain.ids) == ids else [(0, 0)] * len(ids)
