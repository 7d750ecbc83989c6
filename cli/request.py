"""From what a person asked for to a request the generator takes, and from its tokens to the JSON object."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.completion import Completion
    from transformer.generate import Request, Token
    from weights.load import Loaded

DEFAULT_LIMIT = 256
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The options of a generation, None where the model's own setting holds."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    chat: bool = False
    system: str | None = None
    seed: int = 0

    def updated(self, line: dict[str, Any]) -> Wish:
        """With the options of one JSONL line, each of its own type."""
        changes: dict[str, Any] = {}
        for name, value in line.items():
            if name not in KINDS:
                raise InputError(f"unknown option {name!r:.40}, known are {', '.join(KINDS)}")
            if name == "stop":
                value = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
            if not isinstance(value, KINDS[name]) or (isinstance(value, bool) and KINDS[name] is not bool):
                raise InputError(f"{name} has the wrong type: {value!r:.40}")
            if name == "stop" and not all(isinstance(stop, str) for stop in value):
                raise InputError("stop must be a string or a list of strings")
            changes[name] = value
        wish = replace(self, **changes)
        wish.check()
        return wish

    def check(self) -> None:
        for name, low in (("max_tokens", 1), ("logprobs", 0), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and not low <= value < 2**63:
                raise InputError(f"{name} must be at least {low}, got {value}")


KINDS: dict[str, Any] = {
    **dict.fromkeys(SAMPLING, (int, float)),
    "top_k": int,
    "max_tokens": int,
    "logprobs": int,
    "seed": int,
    "stop": tuple,
    "chat": bool,
    "system": str,
}


@dataclass
class Job:
    """One completion under way."""

    loaded: Loaded
    prompt: str
    request: Request
    completion: Completion
    load_s: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    first: float = 0.0  # when the first token was there
    last: float = 0.0

    def feed(self, token: Token) -> str:
        """The text to show after this token; ends the request at a stop string."""
        self.last = time.perf_counter()
        self.first = self.first or self.last
        text = self.completion.feed(token)
        self.request.done = self.request.done or self.completion.finish is not None
        if self.request.done:
            text += self.completion.end()
        return text

    @property
    def rate(self) -> float:
        """Tokens a second after the first."""
        seconds = self.last - self.first
        return (len(self.request.text) - 1) / seconds if seconds > 0 else 0.0

    def as_object(self) -> dict[str, Any]:
        """The shape of `generate --json`."""
        tokens, decode = self.completion.tokens, self.loaded.tokenizer.decode
        result: dict[str, Any] = {
            "prompt": self.prompt,
            "text": self.completion.text,
            "tokens": [token.id for token in tokens],
            "finish_reason": self.completion.finish,
            "seed": self.request.seed,
            "model": self.loaded.name,
            "usage": {"prompt_tokens": len(self.request.prompt), "completion_tokens": len(tokens)},
            "timings": {
                "load_s": round(self.load_s, 4),
                "prefill_s": round(self.first - self.started, 4),
                "decode_s": round(self.last - self.first, 4),
                "decode_tokens_per_s": round(self.rate, 2),
            },
        }
        if self.request.logprobs is not None:
            result["logprobs"] = [
                {
                    "token": token.id,
                    "text": decode([token.id]),
                    "logprob": token.logprob,
                    "top": [{"token": i, "text": decode([i]), "logprob": p} for i, p in token.top],
                }
                for token in tokens
            ]
        return result


def prepare(loaded: Loaded, wish: Wish, prompt: str | list[dict[str, str]]) -> Job:
    """Encodes a prompt, or messages, and checks that it fits before any work is done."""
    from transformer.completion import Completion
    from transformer.generate import Request
    from transformer.sampling import Sampling

    text, ids = _encode(loaded, wish, prompt)
    given = {name: value for name in SAMPLING if (value := getattr(wish, name)) is not None}
    request = Request(
        prompt=ids,
        sampling=Sampling(**{**loaded.sampling, **given}),
        limit=_limit(loaded, wish, len(ids)),
        eos=loaded.eos,
        seed=wish.seed,
        logprobs=wish.logprobs,
    )
    return Job(loaded, text, request, Completion(loaded.tokenizer, ids, loaded.eos, wish.stop))


def _encode(loaded: Loaded, wish: Wish, prompt: str | list[dict[str, str]]) -> tuple[str, list[int]]:
    size = len(prompt.encode()) if isinstance(prompt, str) else sum(len(m["content"].encode()) for m in prompt)
    context, longest = loaded.model.config.context, loaded.tokenizer.longest
    if size > context * longest:  # known without spending minutes on encoding it
        raise InputError(
            f"the prompt has at least {-(-size // longest)} tokens, the context of {loaded.name} {context}"
        )
    if isinstance(prompt, str) and not wish.chat:
        ids = loaded.tokenizer.encode(prompt).ids
        if not ids:
            raise InputError(f"the prompt has no tokens, and {loaded.name} has no token to begin with")
        return prompt, ids
    if loaded.template is None:
        raise InputError(f"{loaded.name} has no chat template; without --chat the text goes in as it is")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if wish.system is not None:
        messages = [{"role": "system", "content": wish.system}, *messages]
    return loaded.template.encode(messages, loaded.tokenizer)


def _limit(loaded: Loaded, wish: Wish, used: int) -> int:
    context = loaded.model.config.context
    if used >= context:
        raise InputError(f"the prompt has {used} tokens, the context of {loaded.name} {context}: no room to write")
    if wish.max_tokens is None:
        return min(loaded.limit or DEFAULT_LIMIT, context - used)
    if used + wish.max_tokens > context:
        raise InputError(f"{used} prompt tokens + {wish.max_tokens} to write exceed the context of {context}")
    return wish.max_tokens
