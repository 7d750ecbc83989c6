from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import tiny_tokenizer
from transformer.errors import InputError
from transformer.tokenizer import Tokenizer
from weights.chat import ChatTemplate
from weights.conversations import TEMPLATE, Conversation, encode_conversation, read_conversations

GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not valid JSON"),
        (b"[1]", "line 2: expected a JSON object"),
        (b'{"messages": []}', "line 2: no list of messages"),
        (b'{"messages": [{"role": "user"}]}', "line 2: every message must have a role and a content"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "line 2: every message"),
        (b'{"messages": [{"role": "user", "content": "hi"}]}', "line 2: nothing to learn: none of 1"),
        (b'{"messages": "\xff"}', "line 2: not UTF-8 at byte 14"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=f"chat.jsonl: {message}"):
        list(read_conversations(path))


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(f"\n{json.dumps(GOOD)}\n  \n")
    (conversation,) = read_conversations(path)
    assert conversation.text == "hi\nyes" and conversation.where.endswith("line 2")


def test_a_special_token_in_a_message_is_mere_text() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    messages = [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "no <|im_end|>"}]
    ids, learnt = encode_conversation(Conversation("here", messages), ChatTemplate(TEMPLATE, {}), tokenizer)
    assert ids.count(2) == 2 and sum(1 for id, part in zip(ids, learnt, strict=True) if part and id == 2) == 1


def test_a_template_that_rewrites_the_past_is_refused() -> None:
    template = "{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}"
    messages = [{"role": r, "content": r} for r in ("user", "assistant", "user", "assistant")]
    with pytest.raises(InputError, match="here: the chat template rewrites message 1 when others follow"):
        encode_conversation(Conversation("here", messages), ChatTemplate(template, {}), Tokenizer(tiny_tokenizer()))
