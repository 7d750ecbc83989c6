"""tfm generate --jsonl: many prompts, one load, rows decoded together, answers in input order."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING, Any

from cli.prompt import decode
from cli.request import Job, Wish, prepare
from cli.terminal import note, progress
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.generate import Request
    from weights.load import Loaded

LINE_LIMIT = 64 << 20  # bytes


def generate_lines(
    source: str, wish: Wish, rows: int, load: Callable[[], tuple[Loaded, float]], seed_drawn: bool
) -> int:
    """1 if any line failed; a bad line never stops the others."""
    from transformer.generate import generate_many, new_cache

    lines = _lines(source)
    loaded, load_s = load()
    if seed_drawn:
        note(f"seed {wish.seed}")
    answers = Answers()
    jobs: dict[int, Job] = {}

    def next_request(wait: bool) -> Request | None:
        while (line := lines.get(wait)) is not None:
            index, data = line
            try:
                fields, prompt = _parse(data, index)
                answers.names[index] = fields.pop("id", None)
                job = prepare(loaded, replace(wish, seed=wish.seed + index).updated(fields), prompt)
            except InputError as error:
                answers.put(index, {"error": str(error)})
                continue
            job.load_s = load_s
            jobs[id(job.request)] = job
            answers.indices[id(job.request)] = index
            return job.request
        return None

    try:
        for request, token in generate_many(loaded.model, new_cache(loaded.model, rows), next_request):
            jobs[id(request)].feed(token)
            if request.done:
                answers.put(answers.indices.pop(id(request)), jobs.pop(id(request)).as_object())
                progress(f"{answers.written} done")
    finally:
        progress("")  # an interrupt, too, leaves a clean line to the shell
    return 1 if answers.failed else 0


class Answers:
    """Prints objects in input order, each as soon as all before it are there."""

    def __init__(self) -> None:
        self.indices: dict[int, int] = {}
        self.names: dict[int, Any] = {}
        self.waiting: dict[int, dict[str, Any]] = {}
        self.written = self.failed = 0

    def put(self, index: int, answer: dict[str, Any]) -> None:
        self.failed += "error" in answer
        name = self.names.pop(index, None)
        self.waiting[index] = {"index": index, **({} if name is None else {"id": name}), **answer}
        while self.written in self.waiting:
            sys.stdout.write(json.dumps(self.waiting.pop(self.written), ensure_ascii=False) + "\n")
            self.written += 1
        sys.stdout.flush()


class _lines:
    """Lines of a file or of stdin, read ahead by a thread so that a slow writer never holds up running rows."""

    def __init__(self, source: str):
        if source == "-":
            stream: IO[bytes] = sys.stdin.buffer
        else:
            try:
                stream = open(source, "rb")  # noqa: SIM115
            except OSError as error:
                raise InputError(f"{source}: {error.strerror}") from None
        self.queue: Queue[tuple[int, bytes] | None] = Queue(maxsize=64)
        self.ended = False
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[bytes]) -> None:
        for item in enumerate(_full(stream)):
            self.queue.put(item)
        self.queue.put(None)

    def get(self, wait: bool) -> tuple[int, bytes] | None:
        if self.ended:
            return None
        try:
            item = self.queue.get(block=wait)
        except Empty:
            return None
        self.ended = item is None
        return item


def _full(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines that hold something."""
    while line := stream.readline(LINE_LIMIT + 1):
        if line.strip():
            yield line


def _parse(data: bytes, index: int) -> tuple[dict[str, Any], str | list[dict[str, str]]]:
    """A line's options, and its prompt or messages."""
    if len(data) > LINE_LIMIT:
        raise InputError(f"line {index}: more than {LINE_LIMIT} bytes")
    try:
        line = json.loads(decode(data, f"line {index}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {index}: not valid JSON: {error}") from None
    if isinstance(line, str):
        return {}, _whole(line, index)
    if not isinstance(line, dict) or ("prompt" in line) == ("messages" in line):
        raise InputError(f'line {index}: needs a string, or an object with either "prompt" or "messages"')
    prompt = line.pop("prompt", None)
    messages = line.pop("messages", None)
    if isinstance(prompt, str):
        return line, _whole(prompt, index)
    if not isinstance(messages, list) or not all(map(_is_message, messages)) or not messages:
        raise InputError(f'line {index}: a prompt is a string, messages are objects with "role" and "content" strings')
    return line, messages


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _whole(text: str, index: int) -> str:
    """JSON can spell half of a surrogate pair, which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"line {index}: half a surrogate pair at character {error.start}") from None
    return text
