"""Chat templates: messages -> the ids a chat model expects.

A template comes with the model file and is a small program. It runs sandboxed, in a child process with little
memory and time, because a hostile one can hang the very compilation of a template.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.tokenizer import Tokenizer

Message = dict[str, Any]

SECONDS, MEMORY, SOURCE_LIMIT, OUTPUT_LIMIT = 10, 1 << 30, 1 << 18, 1 << 20
GUARD = "\ue000{}\ue001"  # private-use characters around the number of a special token that a user wrote


@dataclass
class ChatTemplate:
    source: str
    tokens: dict[str, str]  # bos_token, eos_token, … as the template names them
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def render(self, messages: Sequence[Message], ask: bool = True) -> str:
        """The prompt that asks for an answer to these messages, or the messages alone."""
        answer = self._ask({"messages": list(messages), "add_generation_prompt": ask, **self.tokens})
        if "error" in answer:
            raise InputError(f"chat template: {answer['error']}")
        return str(answer["text"])

    def encode(self, messages: Sequence[Message], tokenizer: Tokenizer, ask: bool = True) -> tuple[str, list[int]]:
        """The prompt and its ids. A special token that a user wrote is mere text; one of the template counts."""
        specials = tokenizer.specials
        names = sorted(specials, key=len, reverse=True)
        guarded = [{key: _guard(value, names) for key, value in message.items()} for message in messages]
        text = self.render(guarded, ask)
        if guarded == list(messages):
            return text, tokenizer.encode_template(text)
        ids: list[int] = []
        for part in re.split("(" + "|".join(map(re.escape, names)) + ")", text):
            ids += [specials[part]] if part in specials else tokenizer.encode_plain(_unguard(part, names))
        return _unguard(text, names), ids

    def _ask(self, variables: dict[str, Any]) -> dict[str, Any]:
        if len(self.source) > SOURCE_LIMIT:
            raise InputError(f"chat template: {len(self.source)} characters, more than the {SOURCE_LIMIT} allowed")
        if self._child is None:
            self._child = _start(self.source)
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(variables).encode() + b"\n")
            child.stdin.flush()
            ready, _, _ = select.select([child.stdout], [], [], SECONDS)
            line = child.stdout.readline() if ready else b""
        except BrokenPipeError:
            line = b""
        if not line:
            self.close()
            raise InputError(f"chat template: no answer within {SECONDS} s and {MEMORY >> 20} MB")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Ends the child, if there is one."""
        if self._child is not None:
            with self._child as child:  # closes its pipes and waits for it
                child.kill()
            self._child = None

    def __del__(self) -> None:
        self.close()


def _start(source: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", "from weights.chat import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,  # a Ctrl-C at the terminal is the parent's business
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(source).encode() + b"\n")
    return child


def serve() -> None:
    """The child: a template on the first line, then a JSON answer for every JSON line of variables."""
    import resource
    from datetime import datetime

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals.pop("lipsum", None)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    lines = sys.stdin.buffer
    source = json.loads(lines.readline())
    for line in lines:
        try:
            text = environment.from_string(source).render(**json.loads(line))
            if len(text) > OUTPUT_LIMIT:
                raise ValueError(f"made {len(text)} characters, more than the {OUTPUT_LIMIT} allowed")
            answer = {"text": text}
        except Exception as error:
            answer = {"error": " ".join(str(error).split())[:200] or type(error).__name__}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _guard(value: Any, specials: Sequence[str]) -> Any:
    if isinstance(value, str):
        for number, special in enumerate(specials):
            value = value.replace(special, GUARD.format(number))
    return value


def _unguard(text: str, specials: Sequence[str]) -> str:
    for number, special in enumerate(specials):
        text = text.replace(GUARD.format(number), special)
    return text
