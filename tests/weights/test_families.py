"""Foreign configs and names as they are met, and what is refused in them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.cases import CASES, QUICK, Case
from tests.reference import random_ids, write_reference
from tests.shapes import SHAPES, layers
from tests.tiny import tiny_config, tiny_model
from tests.weights.test_tensorfile import mutant
from transformer.config import Alibi, Config, Norm, Rope
from transformer.errors import InputError
from weights.checkpoint import load_model, open_checkpoint, save_model
from weights.families.registry import FAMILIES, read_config, write_config

LLAMA = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def read(**values: Any) -> Config:
    return read_config({**LLAMA, **values}, "config.json")[1]


def parameters(path: Path) -> list[torch.Tensor]:
    return list(load_model(open_checkpoint(path)).parameters())


def rename(path: Path, name: Callable[[str], str], **more: torch.Tensor) -> None:
    tensors = load_file(path / "model.safetensors")
    save_file({name(n): t for n, t in tensors.items()} | more, path / "model.safetensors")


BUFFERS = {
    "gpt2": ["h.0.attn.bias", "h.1.attn.masked_bias"],
    "gpt_neox": ["layers.0.attention.bias", "layers.0.attention.masked_bias", "layers.1.attention.rotary_emb.inv_freq"],
    "falcon": ["h.0.self_attention.rotary_emb.inv_freq"],
    "opt": [],
    "bloom": [],
}


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_files_as_they_are_met(case: Case, tmp_path: Path) -> None:
    """With the base model's prefix and without it, with buffers among the weights, with a tied head stored twice."""
    write_reference(case, tmp_path)
    plain = parameters(tmp_path)
    family, config = FAMILIES[case.family], open_checkpoint(tmp_path).config
    assert any(name.startswith((family.prefix, *family.other_prefixes)) for name in open_checkpoint(tmp_path).entries)
    buffers = BUFFERS.get(case.family, ["layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"])
    more = {name: torch.tensor([True]) for name in buffers}
    if config.tied:
        more[f"{family.headless[0]}.weight"] = plain[0].clone()
    rename(tmp_path, lambda name: name.removeprefix(family.prefix).removeprefix("language_model.model."), **more)
    assert all(torch.equal(a, b) for a, b in zip(plain, parameters(tmp_path), strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case.family in ("mixtral", "qwen3_moe")], ids=str)
def test_experts_may_be_stacked(case: Case, tmp_path: Path) -> None:
    """As transformers 5 holds them, and saves them when asked for its own layout."""
    write_reference(case, tmp_path)
    plain = parameters(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, tmp_path / "model.safetensors")
    assert "model.layers.1.mlp.experts.gate_up_proj" in open_checkpoint(tmp_path).entries
    assert all(torch.equal(a, b) for a, b in zip(plain, parameters(tmp_path), strict=True))


@pytest.mark.parametrize("text", ["model.language_model.", "language_model.model.", "model.", ""])
def test_the_text_part_of_gemma3_goes_by_several_names(text: str, tmp_path: Path) -> None:
    """It may stand beside the part for images, before or behind `model.`; saved, it stands alone."""
    case = next(case for case in CASES if case.family == "gemma3")
    write_reference(case, tmp_path)
    plain = parameters(tmp_path)
    images = "model." if text.startswith("model.") else ""
    head = "language_model.lm_head.weight" if text.startswith("language") else "lm_head.weight"
    rename(
        tmp_path,
        lambda name: name.replace("language_model.model.", text) if name.startswith("language") else images + name,
        **{head: plain[0].clone()},
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, parameters(tmp_path), strict=True))
    model = load_model(open_checkpoint(tmp_path))
    (tmp_path / "saved").mkdir()
    save_model(model, tmp_path / "saved", open_checkpoint(tmp_path).values)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", attn_implementation="eager")
    assert type(again).__name__ == "Gemma3ForCausalLM"
    with torch.inference_mode():
        ids = random_ids(1, 12)
        assert torch.allclose(again(ids).logits, model(ids), atol=1e-5)


def test_gemma3_as_published_leaves_out_what_is_usual() -> None:
    text = {
        "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34, "model_type": "gemma3_text",
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }  # fmt: skip
    _, config = read_config({"model_type": "gemma3", "text_config": text, "vision_config": {}}, "config.json")
    assert (config.vocab_size, config.heads, config.kv_heads, config.head_dim) == (262_208, 8, 4, 256)
    assert [layer.window for layer in config.layers[:7]] == [1024] * 5 + [None, 1024]
    assert config.layers[0].rope == Rope(dim=256, theta=10_000.0)
    assert config.layers[5].rope == Rope(dim=256, theta=1_000_000.0, scaling="linear", factor=8.0)
    assert config.tied and config.norm.unit_offset and config.layers[0].attention_scale == 1 / 16


def test_falcon_by_its_first_names() -> None:
    values = {"model_type": "falcon", "vocab_size": 320, "hidden_size": 64, "n_layer": 2, "n_head": 4, "alibi": True}
    _, config = read_config({**values, "multi_query": False, "n_head_kv": 4}, "config.json")
    assert (len(config.layers), config.heads, config.kv_heads) == (2, 4, 4)
    assert config.alibi == Alibi(scale=0.25, rounded=True) and config.layers[0].rope is None
    new = {**values, "alibi": False, "new_decoder_architecture": True, "n_head_kv": 2}
    _, config = read_config(new, "config.json")
    assert (config.kv_heads, config.residual) == (2, "parallel")


def test_names_that_go_by_another_must_agree() -> None:
    values = {"model_type": "gpt2", "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "n_head": 4}
    assert read_config(values, "x")[1].width == 64
    assert read_config({**values, "n_embd": 64}, "x")[1].width == 64
    with pytest.raises(InputError, match="hidden_size is 64 but n_embd is 32"):
        read_config({**values, "n_embd": 32}, "x")


def test_rotary_settings_in_every_style() -> None:
    dynamic = Rope(dim=16, theta=500.0, scaling="dynamic", factor=2.0, original_context=128)
    styles: list[dict[str, Any]] = [
        {"rope_theta": 500.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_theta": 500, "rope_scaling": {"rope_type": "dynamic", "factor": 2}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}},
        {
            "rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0},
            "rope_parameters": {"factor": 9},
        },
    ]
    for style in styles:
        assert read(max_position_embeddings=128, **style).layers[0].rope == dynamic
    for nothing in ({}, {"rope_scaling": None}, {"rope_parameters": None}, {"rope_scaling": {}}):
        assert read(**nothing).layers[0].rope == Rope(dim=16)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 99}
    inside, outside = read(rope_scaling=yarn), read(rope_scaling=yarn, original_max_position_embeddings=64)
    assert inside.layers[0].rope and inside.layers[0].rope.original_context == 99
    assert outside.layers[0].rope and outside.layers[0].rope.original_context == 64  # where it counts first


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"hidden_size": "64"}, "hidden_size must be a whole number, got '64'"),
        ({"hidden_size": True}, "hidden_size must be a whole number, got True"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": -64}, "must be positive"),
        ({"hidden_size": 10**300}, "hidden_size has 301 digits"),
        ({"num_attention_heads": 0}, "numbers that no decoder can have"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be 1 to 4096, got 0"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu' is not supported, only silu"),
        ({"attention_bias": 1}, "attention_bias must be true or false, got 1"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_type 'mrope' is not supported, only default"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be positive"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "of their own for 'full_attention'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported here"),
        ({"rope_theta": 1.0}, "theta must be more than 1"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": []}}, "8 short and long factors"),
        ({"rope_scaling": {"type": "longrope", "short_factor": ["a"], "long_factor": []}}, "a list of numbers"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}, "head_dim": 2}, "more than 2 to be dynamic, got 2"),
        ({"head_dim": 15}, "rotary dimension must be even"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 2}, "layer_types = "),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "1 layer_types for 2 layers"),
        ({"model_type": "qwen2", "layer_types": ["linear_attention"] * 2}, "layer type 'linear_attention'"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "2 layers slide but sliding_window"),
        ({"model_type": "qwen2", "use_mrope": True}, "use_mrope = True is not supported, only False"),
        ({"model_type": "gemma", "use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": -4}, "numbers that no decoder can have"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 30.0}, "attn_logit_softcapping = 30.0"),
        ({"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 5.0}}, "'rope_theta' is not a kind of layer"),
        ({"model_type": "gemma3"}, "text_config is missing"),
        ({"model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported here"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers must be 0 or 1 for 2 layers"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "9 experts active of only 8"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 0}, "decoder_sparse_step must be positive"),
        ({"model_type": "falcon", "new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn = False"),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn = 2"),
        ({"model_type": "bloom", "n_embed": 64, "apply_residual_connection_post_layernorm": True}, "= True is not"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention = True"),
        ({"model_type": "tfm"}, "decoder is missing"),
        ({"model_type": "tfm", "decoder": {"width": 8}}, "context is missing"),
        ({"model_type": "tfm", "decoder": {"widht": 8}}, "'widht' is not one of its"),
    ],
)
def test_settings_we_do_not_follow_are_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as raised:
        read(**values)
    assert str(raised.value).startswith("config.json: ") and complaint in str(raised.value)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_mutants_of_a_config_raise_nothing_but_input_errors(case: Case) -> None:
    values = json.loads(transformers.CONFIG_MAPPING[case.family](**case.settings).to_json_string(use_diff=False))
    draw = random.Random(2)
    read_config(values, "config.json")
    for _ in range(150):
        changed = mutant(draw, values)
        if isinstance(changed, dict):
            try:
                read_config(changed, "config.json")
            except InputError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize("name", SHAPES)
def test_a_decoder_trained_here_is_saved_and_loaded_as_it_was(name: str, tmp_path: Path) -> None:
    model, ids = tiny_model(SHAPES[name]), random_ids(1, 12)
    save_model(model, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == SHAPES[name]
    with torch.inference_mode():
        assert torch.equal(load_model(checkpoint)(ids), model(ids))


LEARNED = {"position_embedding": "learned", "kv_heads": 4, "norm": Norm(kind="layer", eps=1e-5, bias=True)}
PLAIN = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
NO_ROPE = {"layers": layers({"rope": None}, {"rope": None})}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tied": True, "qkv_bias": True, "out_bias": True}),
        ("qwen3", {"qk_norm": Norm()}),
        ("olmo2", {"residual": "output", "qk_norm": Norm(), "qk_norm_over": "all_heads"}),
        ("gpt2", {**LEARNED, **PLAIN, **NO_ROPE, "activation": "gelu_tanh"}),
        ("gpt2", {**LEARNED, **PLAIN, **NO_ROPE, "activation": "relu"}),
        ("opt", {**LEARNED, **PLAIN, **NO_ROPE, "residual": "post", "final_norm": False, "activation": "relu"}),
        ("gpt_neox", {**PLAIN, "kv_heads": 4, "norm": LEARNED["norm"], "residual": "parallel"}),
        ("bloom", {**PLAIN, **NO_ROPE, "kv_heads": 4, "norm": LEARNED["norm"], "alibi": Alibi(), "embed_norm": True,
                   "activation": "gelu_tanh", "layers": layers(*[{"rope": None, "mlp_width": 128}] * 2)}),
        ("tfm", {"activation": "relu2", "qk_norm": Norm(eps=1e-5)}),
        ("tfm", {"layers": layers({"window": 4}, {})}),
        ("tfm", {"layers": layers({"rope": Rope(dim=8, scaling="linear", factor=2.0)})}),
    ],
)  # fmt: skip
def test_a_decoder_trained_here_goes_by_a_known_name_where_there_is_one(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config(**changes)
    assert write_config(config)[0].model_type == family
    if family != "tfm":  # then transformers reads it too
        model, ids = tiny_model(config), random_ids(1, 12)
        save_model(model, tmp_path)
        reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
        with torch.inference_mode():
            assert torch.allclose(reference(ids).logits, model(ids), atol=2e-5)


def test_our_own_format_refuses_wrong_types() -> None:
    decoder = write_config(SHAPES["experts"])[1] | {"model_type": "tfm"}
    for change in ({"width": 32.5}, {"gated": 1}, {"residual": "both"}, {"layers": {}}, {"layers": [7]}, {"norm": []}):
        with pytest.raises(InputError, match=r"config\.json: decoder"):
            read_config(decoder | {"decoder": decoder["decoder"] | change}, "config.json")
