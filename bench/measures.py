"""What is measured: each measure asks the contenders in turns and gives rows of numbers."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.files import as_directory, as_gguf, have
from bench.peers import LlamaCpp, Memory, Peer, Seat, Tfm, Transformers, take_turns
from transformer.config import Config
from weights.load import load_tokenizer, open_model, open_weights

PROMPT, LONG, WRITTEN = 512, 4096, 48
READ, WINDOW = 20_000, 512  # tokens of text that precision is judged by, and how many are read at once
ROWS, ROW_PROMPT, ROW_WRITTEN = 64, 32, 64
MEMORY = "memory, read between them behind "


@dataclass(frozen=True)
class Row:
    measure: str
    name: str
    unit: str
    values: list[float]
    limit: float | None = None  # what the machine allows at most, in the same unit

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True)
class Setting:
    model: Path
    work: Path
    threads: int
    rounds: int
    text: Path | None = None  # unseen by the model
    rows: list[Row] = field(default_factory=list)

    def ids(self, count: int, seed: int = 0) -> list[int]:
        return random.Random(seed).choices(range(100, self.config.vocab_size - 100), k=count)

    @property
    def config(self) -> Config:
        return open_weights(self.model).config

    def peers(self, *kinds: str) -> Iterator[Peer]:
        """Who can take part: what is not installed stays away."""
        source, t = as_directory(self.model, self.work), self.threads
        ggufs = as_gguf(self.model, self.work)
        yield Peer("tfm fp32", Tfm, (str(source), t, False, True), 32)
        yield Peer("tfm int8", Tfm, (str(source), t, True, True), 8)
        if "torch" in kinds:
            yield Peer("tfm fp32, no kernels", Tfm, (str(source), t, False, False), 32)
        if "transformers" in kinds and have("transformers"):
            yield Peer("transformers fp32", Transformers, (str(source), t), 32)
        if self.model.suffix == ".gguf":
            yield Peer("tfm, the file's codes", Tfm, (str(self.model), t, False, True))
        if self.model.suffix == ".gguf" and have("llama_cpp"):
            yield Peer("llama.cpp, the file", LlamaCpp, (str(self.model), t))
        for name, bits in (("F32", 32.0), ("Q8_0", 8.5), ("Q4_0", 4.5)):
            if name in ggufs:
                yield Peer(f"llama.cpp {name}", LlamaCpp, (str(ggufs[name]), t), bits)

    @property
    def prompt(self) -> int:
        return min(PROMPT, self.config.context // 2)

    @property
    def memory(self) -> list[Row]:
        return [row for row in self.rows if row.measure.startswith(MEMORY)]

    def add(self, measure: str, unit: str, found: dict[str, list[float]], limits: dict[str, float]) -> None:
        self.rows.extend(Row(measure, name, unit, values, limits.get(name)) for name, values in found.items())


@contextmanager
def seated(peers: Iterator[Peer]) -> Iterator[list[Seat]]:
    seats = [Seat(peer) for peer in peers]
    try:
        yield seats
    finally:
        for seat in seats:
            seat.leave()


def token_bytes(config: Config, bits: float, context: int) -> float:
    """What one token must read: every weight that is multiplied, and the keys and values of its context."""
    kv = 2 * len(config.layers) * config.kv_heads * config.head_dim * context * 4
    qkv = (config.heads + 2 * config.kv_heads) * config.head_dim
    out = config.heads * config.head_dim
    mlp = sum((3 if config.gated else 2) * layer.mlp_width for layer in config.layers)
    weights = config.width * (len(config.layers) * (qkv + out) + mlp + config.vocab_size)
    return weights * bits / 8 + kv


def decode(setting: Setting) -> None:
    config, rounds = setting.config, setting.rounds
    with seated(setting.peers("torch", "transformers")) as seats:
        short = _decode_behind(setting.prompt, rounds, setting, config, seats)
        if config.context > LONG + WRITTEN:
            ours = [seat for seat in seats if seat.peer.name in ("tfm fp32", "tfm int8")]
            long = _decode_behind(LONG, max(2, rounds // 2), setting, config, ours)
            dearer = {
                name: [1e3 / statistics.median(long[name]) - 1e3 / statistics.median(short[name])] for name in long
            }
            more = token_bytes(config, 0, LONG) - token_bytes(config, 0, setting.prompt)
            dearer["to read them from memory"] = [more / statistics.median(row.median for row in setting.memory) / 1e6]
            setting.add(f"what {LONG - setting.prompt} more tokens in front cost a token", "ms", dearer, {})


def _decode_behind(
    context: int, rounds: int, setting: Setting, config: Config, seats: list[Seat]
) -> dict[str, list[float]]:
    """The contenders' turns, and between them the bandwidth of memory; what bounds all is its best read."""
    ids = setting.ids(context)
    memory = Seat(Peer("memory", Memory, (setting.threads,)))

    def ask(seat: Seat) -> float:
        return seat("read") if seat is memory else 1 / seat("decode", ids, WRITTEN)

    found = take_turns([*seats, memory], rounds, ask)
    memory.leave()
    reads = found.pop("memory")
    limits = {
        seat.peer.name: max(reads) / token_bytes(config, seat.peer.bits, context) for seat in seats if seat.peer.bits
    }
    setting.add(f"decode behind {context} tokens", "tokens/s", found, limits)
    setting.add(f"{MEMORY}{context}", "GB/s", {"all threads": [read / 1e9 for read in reads]}, {})
    return found


def prefill(setting: Setting) -> None:
    ids = setting.ids(setting.prompt)
    with seated(setting.peers("torch", "transformers")) as seats:
        found = take_turns(seats, setting.rounds, lambda seat: len(ids) / seat("prefill", ids))
    setting.add(f"prefill of {len(ids)} tokens", "tokens/s", found, {})


def batch(setting: Setting) -> None:
    prompts = [setting.ids(ROW_PROMPT, seed) for seed in range(ROWS)]
    wanted = ("tfm fp32", "tfm int8", "llama.cpp Q8_0")
    with seated(peer for peer in setting.peers() if peer.name in wanted) as seats:
        found = take_turns(seats, max(1, setting.rounds // 2), lambda seat: seat("batch", prompts, ROW_WRITTEN))
    setting.add(f"{ROWS} prompts of {ROW_PROMPT}, {ROW_WRITTEN} tokens each", "tokens/s", found, {})


def quality(setting: Setting) -> None:
    """What eight bits cost: perplexity of a text, and how often the likeliest next token is that of fp32."""
    if setting.text is None:
        print("quality needs --text FILE: left out", file=sys.stderr)
        return
    _, beside = open_model(setting.model)
    ids = load_tokenizer(beside, setting.config.vocab_size).encode_plain(setting.text.read_text())[:READ]
    with seated(peer for peer in setting.peers() if peer.kind is Tfm) as seats:
        found = {seat.peer.name: seat("predictions", ids, WINDOW) for seat in seats}
    perplexity = {name: [math.exp(nats)] for name, (nats, _) in found.items()}
    exact = found["tfm fp32"][1]
    same = {
        name: [100 * statistics.mean(a == b for a, b in zip(likeliest, exact, strict=True))]
        for name, (_, likeliest) in found.items()
    }
    setting.add(f"perplexity of {len(ids):,} tokens", "", perplexity, {})
    setting.add(f"likeliest token that of fp32, of {len(ids):,}", "%", same, {})


def start(setting: Setting) -> None:
    tfm = [sys.executable, "-m", "cli"]
    commands = {
        "tfm --help": [*tfm, "--help"],
        "python -c 'import torch'": [sys.executable, "-c", "import torch"],
        "tfm generate, one token": [*tfm, "generate", "Once", "-n", "1"],
        "tfm generate -m, one token": [*tfm, "generate", "Once", "-n", "1", "-m", str(setting.model)],
    }
    if have("transformers"):
        load = "import sys; from transformers import AutoModelForCausalLM as A; A.from_pretrained(sys.argv[1])"
        commands["transformers, loading"] = [sys.executable, "-c", load, str(as_directory(setting.model, setting.work))]
    setting.add("start", "s", _in_turns(commands, setting)[0], {})


def explain(setting: Setting) -> None:
    text = "The little fox ran down to the river and looked at the other fox in it. " * 30
    source = as_directory(setting.model, setting.work)
    attentions = (
        "import sys, torch; torch.set_num_threads(int(sys.argv[2])); from transformers import AutoTokenizer as T, "
        "AutoModelForCausalLM as A; t = T.from_pretrained(sys.argv[1]); m = A.from_pretrained(sys.argv[1], "
        "attn_implementation='eager', dtype=torch.float32); ids = t(sys.argv[3], return_tensors='pt').input_ids\n"
        "with torch.no_grad(): print(len(m(ids, output_attentions=True).attentions))"
    )
    commands = {"tfm explain --json": [sys.executable, "-m", "cli", "explain", "--json", "-m", str(source), text]}
    if have("transformers"):
        commands["transformers, all attentions"] = [
            sys.executable, "-c", attentions, str(source), str(setting.threads), text
        ]  # fmt: skip
    seconds, memory = _in_turns(commands, setting)
    setting.add("explain a page", "s", seconds, {})
    setting.add("explain a page, memory", "MB", memory, {})


def train(setting: Setting) -> None:
    """6 layers × 256, vocabulary 4,096, 16 × 256 tokens a step, fp32; the other side is GPT2LMHeadModel."""
    if not have("transformers"):
        return
    from bench.train import Trainer

    peers = {
        "tfm, AdamW": ("adamw", True),
        "tfm, Muon": ("muon", True),
        "tfm, AdamW, no kernels": ("adamw", False),
        "transformers, AdamW": ("gpt2", False),
    }
    with seated(Peer(name, Trainer, (*kind, setting.threads)) for name, kind in peers.items()) as seats:
        found = take_turns(seats, setting.rounds, lambda seat: seat("speed", 1))
        operations = {seat.peer.name: seat("operations") for seat in seats}
    useful = {name: [speed * operations[name] / 1e9 for speed in found[name]] for name in found}
    setting.add("train 6 layers × 256", "tokens/s", found, {})
    setting.add("train 6 layers × 256, at equal operations a token", "GFLOP/s", useful, {})


def _in_turns(commands: dict[str, list[str]], setting: Setting) -> tuple[dict[str, list[float]], ...]:
    """Seconds, and megabytes of memory at most, of each command and round; the first of them does not count."""
    rounds = [{name: _run(command, setting) for name, command in commands.items()} for _ in range(setting.rounds + 1)]
    return tuple({name: [found[name][i] for found in rounds[1:]] for name in commands} for i in range(2))


def _run(command: list[str], setting: Setting) -> tuple[float, float]:
    """Seconds, and the most megabytes of memory."""
    environment = {**os.environ, "TFM_THREADS": str(setting.threads), "OMP_NUM_THREADS": str(setting.threads)}
    with tempfile.TemporaryFile() as nowhere:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, stdin=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if status:
            nowhere.seek(0)
            raise RuntimeError(f"{' '.join(command)[:200]} failed: {nowhere.read()[-500:]!r}")
    return seconds, usage.ru_maxrss * 1024 / 1e6


MEASURES: dict[str, Callable[[Setting], None]] = {
    "decode": decode,
    "prefill": prefill,
    "batch": batch,
    "quality": quality,
    "start": start,
    "explain": explain,
    "train": train,
}
