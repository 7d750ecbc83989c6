"""The same checkpoint in transformers, and how close tfm comes to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.falcon import modeling_falcon

from tests.cases import VOCABULARY, Case
from tests.promises import Measured, distance, feed, new_cache, worst
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.tap import Fused, Rule, attention_weights, open_attention
from weights.checkpoint import Checkpoint, load_model, open_checkpoint, save_model
from weights.families.registry import read_config

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PROMPT, STEPS, DISTINCT = 16, 40, 8

# Falcon's attention in the open adds ALiBi to the scores and once more with the mask; its fused attention, which is
# what everybody runs, adds it once. Half of it twice is the same.
build_alibi = modeling_falcon.build_alibi_tensor
modeling_falcon.build_alibi_tensor = lambda *args, **settings: build_alibi(*args, **settings) / 2


def write_reference(case: Case, path: Path) -> None:
    """A model with random weights, saved by transformers itself."""
    config = transformers.CONFIG_MAPPING[case.family](**case.settings)
    build = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model = build(config)
    random = torch.Generator().manual_seed(case.seed)
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter is embedding:
                parameter.normal_(0.0, case.embedding_spread, generator=random)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1, generator=random)
            elif parameter.ndim == 1 or "norm" in name:
                at = float(parameter.mean())  # gains start at one, or at zero where they count from one
                parameter.normal_(at, 0.2, generator=random)
            else:
                parameter.normal_(0.0, case.spread, generator=random)
    model.save_pretrained(path)


def load_reference(path: Path) -> nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()


@dataclass(frozen=True)
class Subject:
    """One case, loaded by both."""

    case: Case
    checkpoint: Checkpoint
    model: Transformer
    reference: nn.Module

    @cached_property
    def ids(self) -> Tensor:
        return random_ids(2, 20)

    @cached_property
    def weights(self) -> list[Tensor]:
        """The attention of every layer to `ids`: (B, H, T, T)"""
        tap = Weights()
        self.model(self.ids, tap=tap)
        return tap.seen


def random_ids(rows: int, length: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


class Weights(Fused):
    """Keeps the attention weights of every layer."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        self.seen.append(attention_weights(q, k, mask, rule, 0, q.shape[2]))
        return open_attention(q, k, v, mask, rule)


def subject(case: Case, path: Path) -> Subject:
    write_reference(case, path)
    checkpoint = open_checkpoint(path)
    return Subject(case, checkpoint, load_model(checkpoint), load_reference(path))


def logits(s: Subject) -> Measured:
    return distance(s.model(s.ids), s.reference(s.ids).logits)


def greedy(s: Subject) -> Measured:
    """The same reply, token by token, unless the best two were as good as equal."""
    if s.case.beyond:
        return logits(s)
    prompt = random_ids(1, PROMPT)
    theirs = s.reference.generate(  # type: ignore[operator]
        prompt, max_new_tokens=STEPS, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    reply = theirs.sequences[0, PROMPT:].tolist()
    assert len(set(reply)) >= DISTINCT, f"{s.case}: a reply of {len(set(reply))} different tokens shows nothing"
    cache = new_cache(s.model, 1, PROMPT + STEPS, step=PROMPT)
    last = feed(s.model, cache, prompt, [PROMPT])[:, -1]
    measured = []
    for token, wanted in zip(reply, theirs.logits, strict=True):
        measured.append(distance(last, wanted))
        if int(last.argmax()) != token:
            first, second = wanted[0].topk(2).values.tolist()
            return worst(iter(measured)) if first - second <= 1e-3 else Measured(torch.inf, 0.0)
        last = feed(s.model, cache, torch.tensor([[token]]), [1])[:, -1]
    return worst(iter(measured))


def attention(s: Subject) -> Measured:
    theirs = s.reference(s.ids, output_attentions=True).attentions
    pairs = zip(s.weights, theirs, strict=True)
    return Measured(max(float((ours - other).abs().max()) for ours, other in pairs), 3e-5)


def rows(s: Subject) -> Measured:
    """Rows of attention sum to one; what lies ahead or behind the window is exactly zero."""
    T = s.ids.shape[1]
    back = torch.arange(T)[:, None] - torch.arange(T)
    for layer, weights in zip(s.checkpoint.config.layers, s.weights, strict=True):
        hidden = (back < 0) | (back >= (layer.window or T))
        if weights[:, :, hidden].any():
            return Measured(torch.inf, 0.0)
    return Measured(max(float((w.sum(-1) - 1).abs().max()) for w in s.weights), 1e-6)


def saved(s: Subject, path: Path) -> Measured:
    """transformers reads what tfm wrote, and computes exactly the same."""
    save_model(s.model, path, s.checkpoint.values)
    again = load_reference(path)(s.ids).logits
    return Measured(float((again - s.reference(s.ids).logits).abs().max()), 0.0)


def version_4(s: Subject) -> Measured:
    """The config in the words of transformers 4 describes the same decoder."""
    _, config = read_config(as_version_4(s.case, s.checkpoint.values), str(s.case))
    return Measured(float(config != s.checkpoint.config), 0.0)


def as_version_4(case: Case, values: dict[str, Any]) -> dict[str, Any]:
    """What transformers 4 would have written: rotary settings at the top, no list of layer types, other names."""
    if "text_config" in values:
        return {**values, "text_config": as_version_4(case, values["text_config"])}
    values = {old_name(case.family, key): value for key, value in values.items()}
    parameters = values.pop("rope_parameters", None)
    if "layer_types" in values and "layer_types" not in case.settings:
        del values["layer_types"]
    if parameters and "full_attention" in parameters:
        values |= _old_rope(case.family, parameters["full_attention"])
        values["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        values["sliding_window_pattern"] = values.pop("_sliding_window_pattern")
    elif parameters:
        values |= _old_rope(case.family, parameters)
    return values


def old_name(family: str, key: str) -> str:
    names = {"dtype": "torch_dtype"}
    names |= {"num_local_experts": "num_experts"} if family == "qwen3_moe" else {}
    names |= {"hidden_size": "n_embed"} if family == "bloom" else {}
    return names.get(key, key)


def _old_rope(family: str, parameters: dict[str, Any]) -> dict[str, Any]:
    scaling = dict(parameters)
    theta, fraction = (
        ("rotary_emb_base", "rotary_pct") if family == "gpt_neox" else ("rope_theta", "partial_rotary_factor")
    )
    top = {theta: scaling.pop("rope_theta")}
    if "partial_rotary_factor" in scaling:
        top[fraction] = scaling.pop("partial_rotary_factor")
    kind = scaling.pop("rope_type")
    return {**top, "rope_scaling": None if kind == "default" else {"type": kind, **scaling}}


PROMISES: dict[str, Callable[[Subject], Measured]] = {
    "logits": logits,
    "greedy": greedy,
    "attention": attention,
    "rows": rows,
    "version 4": version_4,
}
