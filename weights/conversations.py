"""Chat data: JSONL with one `{"messages": [{"role": …, "content": …}, …]}` a line -> ids, and which are answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transformer.errors import InputError
from weights.chat import ChatTemplate, Message
from weights.strict_json import MEGABYTE, parse_json

if TYPE_CHECKING:
    from transformer.tokenizer import Tokenizer

LINE_LIMIT = 16 * MEGABYTE
# What a model that never saw a conversation learns them in.
SPECIALS = ("<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Conversation(NamedTuple):
    where: str  # file and line
    messages: list[Message]

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.messages)


def read_conversations(path: Path) -> Iterator[Conversation]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_LIMIT):
                number += 1
                where = f"{path}: line {number}"
                if len(line) == LINE_LIMIT:
                    raise InputError(f"{where}: longer than {LINE_LIMIT} bytes")
                if line.strip():
                    yield Conversation(where, _messages(line, where))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _messages(line: bytes, where: str) -> list[Message]:
    messages = parse_json(line, where).get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError(f"{where}: no list of messages")
    for message in messages:
        if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise InputError(f"{where}: every message must have a role and a content, both text")
    if not any(message["role"] == "assistant" for message in messages):
        raise InputError(f"{where}: nothing to learn: none of {len(messages)} messages is the assistant's")
    return messages


def encode_conversation(
    conversation: Conversation, template: ChatTemplate, tokenizer: Tokenizer
) -> tuple[list[int], list[bool]]:
    """The ids, and for each whether it belongs to an answer: what the template adds behind what asks for it."""
    messages = conversation.messages
    ids = template.encode(messages, tokenizer, ask=False)[1]
    learnt = [False] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            start = len(template.encode(messages[:i], tokenizer)[1])
            stop = len(template.encode(messages[: i + 1], tokenizer, ask=False)[1])
            if template.encode(messages[:i], tokenizer)[1] != ids[:start] or stop > len(ids):
                raise InputError(f"{conversation.where}: the chat template rewrites message {i} when others follow")
            learnt[start:stop] = [True] * (stop - start)
    return ids, learnt
