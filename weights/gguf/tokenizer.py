"""The tokenizer of a GGUF file, told as the JSON files that a model directory keeps beside its weights.

Two kinds: byte-level BPE with its merges ("gpt2"), told apart by how the text is first cut into words, and
SentencePiece's BPE with scores ("llama").
"""

from __future__ import annotations

import math
from typing import Any

from transformer.errors import InputError
from weights.families.foreign import Foreign

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Tokens that end an answer, whatever the file calls its EOS; counted only where the file marks them as control tokens.
ENDINGS = {
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>",
    "<EOT>", "[EOT]", "</s>", "<eos>", "<｜end▁of▁sentence｜>",
}  # fmt: skip

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LINES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + LINES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + LINES
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+{0}|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*{0}|"
PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# How text is cut before the merges: each pattern in turn isolates what it matches.
CUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"), (GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), (r"\p{N}", GPT2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe"), (LLAMA3,)),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan"), (QWEN2,)),
    "tekken": (CASED.replace("{0}", "") + r"\p{N}|" + PATHS,),
    **dict.fromkeys(("gpt-4o", "llama4"), (CASED.replace("{0}", CONTRACTIONS + "?") + r"\p{N}{1,3}|" + PATHS,)),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-\x{D7FF}]+", r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
WHOLE_WORDS = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"}  # a known word needs no merges
WITH_BOS = WHOLE_WORDS  # unless the file says otherwise


class Vocabulary:
    """The metadata under `tokenizer.`, checked."""

    def __init__(self, metadata: dict[str, Any], source: str):
        self.c = Foreign({k.removeprefix("tokenizer.ggml."): v for k, v in metadata.items()}, source)
        self.architecture = metadata.get("general.architecture")
        self.kind = self.c.text("model")
        if self.kind not in ("gpt2", "llama"):
            raise self.error(f"tokenizer {self.kind!r:.40} is not supported, only gpt2 and llama")
        self.cut = self.c.text("pre", "default")
        if self.kind == "gpt2" and self.cut not in CUTS:
            raise self.error(f"pre-tokenizer {self.cut!r:.40} is not supported, only {', '.join(CUTS)}")
        self.tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(self._list("tokens", str))]
        self.types = self._list("token_type", int, [NORMAL] * len(self.tokens))
        self.ids = {text: id for id, text in enumerate(self.tokens)}
        if len(self.ids) < len(self.tokens):
            twice = next(text for id, text in enumerate(self.tokens) if self.ids[text] != id)
            raise self.error(f"the token {twice!r:.40} stands twice among {len(self.tokens)}")

    def error(self, message: str) -> InputError:
        return InputError(f"{self.c.source}: {message}")

    def _list(self, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        values = self.c.list(key, default) if default is not None else self.c.list(key)
        if any(type(value) is not kind for value in values):
            raise self.error(f"tokenizer.ggml.{key} must hold {kind.__name__} values only")
        if key != "merges" and key != "tokens" and len(values) != len(self.tokens):
            raise self.error(f"{len(values)} {key} for {len(self.tokens)} tokens")
        return values

    def id(self, name: str) -> int | None:
        """A token that the metadata name by id: bos, eos, eot ..."""
        id = self.c.integer(f"{name}_token_id", None)
        if id is not None and not 0 <= id < len(self.tokens):
            raise self.error(f"{name}_token_id is {id}, there are {len(self.tokens)} tokens")
        return id

    def text(self, name: str) -> str | None:
        id = self.id(name)
        return None if id is None else self.tokens[id]

    @property
    def eos(self) -> list[int]:
        """Whatever ends a text or an answer."""
        named = [id for name in ("eos", "eot", "eom") if (id := self.id(name)) is not None]
        known = [self.ids[text] for text in ENDINGS & self.ids.keys() if self.types[self.ids[text]] == CONTROL]
        return sorted({*named, *known})

    def json(self) -> dict[str, Any]:
        """tokenizer.json"""
        parts = self._byte_level() if self.kind == "gpt2" else self._sentencepiece()
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [self._added(id) for id, kind in enumerate(self.types) if kind in (CONTROL, USER_DEFINED)],
            "post_processor": self._framed(),
            **parts,
        }

    def _byte_level(self) -> dict[str, Any]:
        splits = [
            {"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": False}
            for cut in CUTS[self.cut]
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
            "decoder": byte_level,
            "model": self._model(self._list("merges", str), ignore_merges=self.cut in WHOLE_WORDS),
        }

    def _sentencepiece(self) -> dict[str, Any]:
        spaced = self.c.flag("add_space_prefix", True)
        prepend = [{"type": "Prepend", "prepend": "▁"}] if spaced else []
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
        unknown = next((text for text, kind in zip(self.tokens, self.types, strict=True) if kind == UNKNOWN), None)
        return {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [*prepend, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
            },
            "pre_tokenizer": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    *strip,
                ],
            },
            "model": self._model(self._merges_by_score(), unk_token=unknown, fuse_unk=True, byte_fallback=True),
        }

    def _model(self, merges: list[str] | list[tuple[str, str]], **own: Any) -> dict[str, Any]:
        return {"type": "BPE", "vocab": self.ids, "merges": merges, **own}

    def _merges_by_score(self) -> list[tuple[str, str]]:
        """Every way to put a piece together out of two others, the piece of the highest score first."""
        scores: list[float] = self._list("scores", float)
        if any(math.isnan(score) for score in scores):
            raise self.error("a token's score is not a number")
        ids, merges = self.ids, []
        for id, piece in enumerate(self.tokens):
            if self.types[id] in (NORMAL, USER_DEFINED, UNUSED):
                halves = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
                pairs = [pair for pair in halves if pair[0] in ids and pair[1] in ids]
                merges += [(-scores[id], id, pair) for pair in sorted(pairs, key=lambda p: (ids[p[0]], ids[p[1]]))]
        return [pair for _, _, pair in sorted(merges, key=lambda merge: merge[:2])]

    def _added(self, id: int) -> dict[str, Any]:
        text = self.tokens[id]
        # Phi-3's own tokenizer swallows the space behind its turn markers; no key says so.
        swallows = self.architecture == "phi3" and self.kind == "llama" and text not in ("<s>", "<|endoftext|>")
        return {
            "id": id,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": swallows,
            "normalized": False,
            "special": self.types[id] == CONTROL,
        }

    def _framed(self) -> dict[str, Any] | None:
        """BOS in front and EOS behind, where the file or its kind of tokenizer wants them."""
        bos = self.c.flag("add_bos_token", self.kind == "llama" or self.cut in WITH_BOS)
        eos = self.c.flag("add_eos_token", False)
        before = self._special("bos", 1) if bos else []
        after = self._special("eos", 2) if eos else []
        if not before and not after:
            return None
        frame = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
        tokens = {piece["SpecialToken"]["id"] for piece in (*before, *after)}
        return {
            "type": "TemplateProcessing",
            "single": frame,
            "pair": [*frame, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {text: {"id": text, "ids": [self.ids[text]], "tokens": [text]} for text in tokens},
        }

    def _special(self, name: str, usual: int) -> list[dict[str, Any]]:
        id = self.id(name)
        if id is None and self.kind == "llama" and usual < len(self.tokens):
            id = usual  # where SentencePiece keeps it
        return [] if id is None else [{"SpecialToken": {"id": self.tokens[id], "type_id": 0}}]
