"""The contenders. Each lives in a process of its own, where it waits until it is its turn."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTEXT = 8192


class Tfm:
    def __init__(self, path: str, threads: int, quantize: bool, native: bool):
        import torch

        from transformer.accelerate import accelerate
        from weights.checkpoint import load_model
        from weights.load import open_weights
        from weights.native.library import find_native

        torch.set_num_threads(threads)
        library = find_native() if native else None
        self.model = load_model(open_weights(Path(path)), torch.float32, quantize=quantize, keep_codes=native)
        if library is not None:
            accelerate(self.model, library)

    def predictions(self, ids: list[int], window: int) -> tuple[float, list[int]]:
        """Nats a token of a text, read in windows, and the likeliest id at each of its positions."""
        import torch
        from torch.nn import functional as F

        nats, likeliest = 0.0, list[int]()
        for start in range(0, len(ids) - 1, window):
            part = torch.tensor(ids[start : start + window + 1])
            with torch.inference_mode():
                logits = self.model(part[None, :-1])[0]
            nats += float(F.cross_entropy(logits, part[1:], reduction="sum"))
            likeliest += logits.argmax(-1).tolist()
        return nats / (len(ids) - 1), likeliest

    def prefill(self, ids: list[int]) -> float:
        from transformer import generate as engine

        cache = engine.new_cache(self.model, capacity=len(ids))
        started = time.perf_counter()
        engine.prefill(self.model, cache, ids)
        return time.perf_counter() - started

    def decode(self, ids: list[int], count: int) -> float:
        from transformer import generate as engine
        from transformer.sampling import Sampling

        request = engine.Request(ids, Sampling(temperature=0), count + 1)
        cache = engine.new_cache(self.model, capacity=len(ids) + count)
        tokens = engine.generate(self.model, cache, request)
        next(tokens)
        started = time.perf_counter()
        for _ in tokens:
            pass
        return (time.perf_counter() - started) / count

    def batch(self, prompts: list[list[int]], count: int) -> float:
        """All prompts together, as --jsonl does; tokens a second."""
        from transformer import generate as engine
        from transformer.sampling import Sampling

        waiting = [engine.Request(ids, Sampling(temperature=0), count) for ids in reversed(prompts)]
        cache = engine.new_cache(self.model, len(prompts), capacity=len(prompts[0]) + count)
        started = time.perf_counter()
        written = sum(
            1 for _ in engine.generate_many(self.model, cache, lambda wait: waiting.pop() if waiting else None)
        )
        return written / (time.perf_counter() - started)


class Transformers:
    def __init__(self, path: str, threads: int):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def _read(self, ids: list[int], cache: Any = None) -> Any:
        import torch

        return self.model(torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1)

    def prefill(self, ids: list[int]) -> float:
        started = time.perf_counter()
        self._read(ids)
        return time.perf_counter() - started

    def decode(self, ids: list[int], count: int) -> float:
        """Without `generate` around it: the model and the likeliest token, no more."""
        answer = self._read(ids)
        started = time.perf_counter()
        for _ in range(count):
            answer = self._read([int(answer.logits[0, -1].argmax())], answer.past_key_values)
        return (time.perf_counter() - started) / count


class LlamaCpp:
    def __init__(self, path: str, threads: int):
        from llama_cpp import Llama

        self.model = Llama(
            path, n_ctx=CONTEXT, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.vocabulary = self.model.n_vocab()

    def _likeliest(self) -> int:
        import llama_cpp
        import numpy as np

        logits = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())

    def prefill(self, ids: list[int]) -> float:
        self.model.reset()
        started = time.perf_counter()
        self.model.eval(ids)
        return time.perf_counter() - started

    def decode(self, ids: list[int], count: int) -> float:
        self.model.reset()
        self.model.eval(ids)
        started = time.perf_counter()
        for _ in range(count):
            self.model.eval([self._likeliest()])
        return (time.perf_counter() - started) / count

    def batch(self, prompts: list[list[int]], count: int) -> float:
        """One prompt after the other; tokens a second, so that a few stand for all."""
        prompts = prompts[:8]
        started = time.perf_counter()
        for ids in prompts:
            self.model.reset()
            self.model.eval(ids)
            for _ in range(count - 1):
                self.model.eval([self._likeliest()])
        return len(prompts) * count / (time.perf_counter() - started)


class Memory:
    """How fast this machine reads memory, with as many threads as the others have: what bounds them all."""

    def __init__(self, threads: int):
        import torch

        from weights.memory import Room

        torch.set_num_threads(threads)
        self.numbers = Room("cpu").empty((1 << 27,), torch.float32)
        self.numbers.fill_(1.0)

    def read(self) -> float:
        """Bytes a second."""
        started = time.perf_counter()
        self.numbers.sum()
        return self.numbers.nbytes / (time.perf_counter() - started)


@dataclass(frozen=True)
class Peer:
    name: str
    kind: type
    arguments: tuple[Any, ...]
    bits: float = 0.0  # a weight


def _serve(pipe: Any, kind: type, arguments: tuple[Any, ...]) -> None:
    try:
        contender = kind(*arguments)
        pipe.send((True, None))
        while (call := pipe.recv()) is not None:
            name, values = call
            pipe.send((True, getattr(contender, name)(*values)))
    except EOFError:  # nobody asks any more
        return
    except Exception:
        pipe.send((False, traceback.format_exc()))


class Seat:
    """A contender's process."""

    def __init__(self, peer: Peer):
        self.peer = peer
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, peer.kind, peer.arguments), daemon=True)
        self.process.start()
        self._answer()

    def __call__(self, name: str, *values: Any) -> Any:
        self.pipe.send((name, values))
        return self._answer()

    def _answer(self) -> Any:
        fine, answer = self.pipe.recv()
        if not fine:
            raise RuntimeError(f"{self.peer.name}: {answer}")
        return answer

    def leave(self) -> None:
        self.pipe.send(None)
        self.process.join()


def take_turns(seats: Sequence[Seat], rounds: int, ask: Callable[[Seat], Any]) -> dict[str, list[Any]]:
    """Everyone once to warm up, which does not count; then round by round, one at a time."""
    found: dict[str, list[Any]] = {seat.peer.name: [] for seat in seats}
    for number in range(rounds + 1):
        for seat in seats:
            answer = ask(seat)
            if number:
                found[seat.peer.name].append(answer)
    return found
