"""Model directories, sound, messy and broken."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.reference import random_ids
from tests.tiny import tiny_config, tiny_model
from tests.weights.test_tensorfile import mutant
from transformer.errors import InputError
from weights.checkpoint import load_model, open_checkpoint, save_model

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A llama of two layers with its head apart."""
    path = tmp_path / "model"
    path.mkdir()
    save_model(tiny_model(), path)
    return path


def change_tensors(path: Path, change: Callable[[Tensors], Tensors]) -> None:
    tensors = change(load_file(path / "model.safetensors"))
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")


def change_config(path: Path, **changes: Any) -> None:
    values = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(values))


def shard(path: Path, where: Callable[[str], str]) -> dict[str, str]:
    """Splits model.safetensors into shards with an index; gives the index."""
    tensors = load_file(path / "model.safetensors")
    names = {name: where(name) for name in tensors}
    for file in set(names.values()):
        save_file({name: tensors[name] for name, its in names.items() if its == file}, path / file)
    (path / "model.safetensors").unlink()
    write_index(path, names)
    return names


def write_index(path: Path, names: Any) -> None:
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def halves(name: str) -> str:
    return f"model-0000{1 + ('layers.1' in name)}-of-00002.safetensors"


def logits(path: Path) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = load_model(open_checkpoint(path))(random_ids(1, 8))
    return result


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        load_model(open_checkpoint(path))
    message = str(raised.value)
    assert str(path) in message and "\n" not in message
    return message


def test_a_saved_model_loads_as_it_was(model: Path) -> None:
    with torch.inference_mode():
        assert torch.equal(logits(model), tiny_model()(random_ids(1, 8)))


def test_shards_load_like_one_file(model: Path) -> None:
    whole = logits(model)
    shard(model, halves)
    assert torch.equal(logits(model), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_load_at_the_precision_asked_for(model: Path, dtype: torch.dtype) -> None:
    loaded = load_model(open_checkpoint(model), dtype)
    assert {p.dtype for p in loaded.parameters()} == {dtype}
    for ours, original in zip(loaded.parameters(), tiny_model().parameters(), strict=True):
        assert torch.equal(ours, original.to(dtype))


def test_a_half_precision_file_stays_so_and_widens_exactly(tmp_path: Path) -> None:
    save_model(tiny_model().to(torch.bfloat16), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    kept, wide = load_model(open_checkpoint(tmp_path)), load_model(open_checkpoint(tmp_path), torch.float32)
    for narrow, full in zip(kept.parameters(), wide.parameters(), strict=True):
        assert narrow.dtype == torch.bfloat16 and torch.equal(narrow.float(), full)


def test_rows_copied_in_blocks_all_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights.checkpoint.BLOCK", 1000)
    save_model(tiny_model(), tmp_path)
    loaded = load_model(open_checkpoint(tmp_path), torch.float64)
    assert all(torch.equal(a, b.double()) for a, b in zip(loaded.parameters(), tiny_model().parameters(), strict=True))


def test_a_tied_head_may_be_stored_twice_but_not_as_something_else(tmp_path: Path) -> None:
    save_model(tiny_model(tiny_config(tied=True)), tmp_path)
    once = logits(tmp_path)
    change_tensors(tmp_path, lambda t: t | {"lm_head.weight": t["model.embed_tokens.weight"]})
    assert torch.equal(logits(tmp_path), once)
    for other in (lambda w: w + 1, lambda w: w[:5], lambda w: w.to(torch.bfloat16)):
        change_tensors(tmp_path, lambda t, other=other: t | {"lm_head.weight": other(t["model.embed_tokens.weight"])})
        assert "lm_head.weight is not model.embed_tokens.weight, though tie_word_embeddings" in refusal(tmp_path)


def test_missing_surplus_and_misshapen_tensors_are_refused(model: Path) -> None:
    name, other = "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.side_proj.weight"
    original = (model / "model.safetensors").read_bytes()

    change_tensors(model, lambda t: {n: w for n, w in t.items() if n != name})
    assert refusal(model).endswith(": tensor layers.1.mlp.up_proj.weight is missing: 21 are needed, 20 are there")
    (model / "model.safetensors").write_bytes(original)
    change_tensors(model, lambda t: t | {other: t[name]})
    assert f"model.safetensors: tensor {other} is unknown to llama: 1 of 22 are" in refusal(model)
    (model / "model.safetensors").write_bytes(original)
    change_tensors(model, lambda t: t | {name: t[name].t()})
    assert f"model.safetensors: tensor {name} is [32, 48], the config needs [48, 32]" in refusal(model)


def test_a_tensor_of_integers_is_refused(model: Path) -> None:
    name = "model.norm.weight"
    change_tensors(model, lambda t: t | {name: t[name].to(torch.int64)})
    assert f"tensor {name} is I64, weights must be F64, F32, F16, BF16" in refusal(model)


def test_one_tensor_under_two_names_is_refused(model: Path) -> None:
    change_tensors(model, lambda t: t | {"norm.weight": t["model.norm.weight"]})
    assert "model.norm.weight and norm.weight are one tensor stored under two names" in refusal(model)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", "x.bin", "a\n.safetensors", 7]
)
def test_shard_names_that_leave_the_directory_are_refused(model: Path, name: Any) -> None:
    names = shard(model, halves)
    write_index(model, names | {"model.norm.weight": name})
    assert f"shard {name!r} is not the name of a file beside it" in refusal(model)


def test_broken_indexes_are_refused(model: Path) -> None:
    names = shard(model, halves)
    first, second = sorted(set(names.values()))
    write_index(model, names | {"ghost": first})
    assert f"tensor 'ghost' is not among the 12 of {first}" in refusal(model)
    write_index(model, names | {"model.norm.weight": second})
    assert f"tensor 'model.norm.weight' is not among the 9 of {second}" in refusal(model)
    for nothing in ({}, [], None):
        write_index(model, nothing)
        assert "index.json: weight_map is missing" in refusal(model)
    write_index(model, names)
    (model / second).unlink()
    assert f"{second}: no such file" in refusal(model)
    shutil.copy(model / first, model / second)
    write_index(model, dict.fromkeys((n for n in names if "layers.1" not in n), first) | {"model.norm.weight": second})
    assert f"stands in {first} as well" in refusal(model)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "last.ckpt"])
def test_pickles_are_refused_unread(model: Path, name: str) -> None:
    (model / "model.safetensors").rename(model / name)
    assert f"{name}: pickle files can run code and are not read; need safetensors" in refusal(model)


def test_incomplete_directories_are_refused(model: Path, tmp_path: Path) -> None:
    assert "config.json: no such file" in refusal(tmp_path / "nowhere")
    (model / "model.safetensors").unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refusal(model)
    (model / "config.json").unlink()
    assert "config.json: no such file" in refusal(model)


def test_a_config_that_describes_another_model_is_refused(model: Path) -> None:
    change_config(model, model_type="mamba")
    assert "config.json: model_type 'mamba' is not supported, only llama, " in refusal(model)
    change_config(model, model_type=None)
    assert "config.json: model_type is missing" in refusal(model)
    change_config(model, model_type="llama", num_hidden_layers=3)
    assert "tensor layers.2.self_attn.q_proj.weight is missing: 30 are needed, 21 are there" in refusal(model)
    change_config(model, num_hidden_layers=2, hidden_size=64)
    assert "model.safetensors: tensor model.embed_tokens.weight is [320, 32], the config needs [320, 64]" in refusal(
        model
    )
    change_config(model, hidden_size=2**40, head_dim=8)
    assert "a decoder of at least" in refusal(model)
    change_config(model, num_hidden_layers=10**9)
    assert "num_hidden_layers must be 1 to 4096, got 1000000000" in refusal(model)


def test_quantized_weights_are_refused(model: Path) -> None:
    change_config(model, quantization_config={"quant_method": "gptq"})
    assert "quantization_config = {'quant_method': 'gptq'} is not supported" in refusal(model)


def test_mutants_of_a_directory_raise_nothing_but_input_errors(model: Path) -> None:
    """Config and header, changed together and loaded to the end where they are still accepted."""
    values = json.loads((model / "config.json").read_text())
    whole = (model / "model.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    draw = random.Random(1)
    loaded = 0
    for i in range(400):
        (model / "config.json").write_text(json.dumps(mutant(draw, values)))
        text = json.dumps(mutant(draw, header) if i % 4 == 0 else header).encode()
        (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        try:
            load_model(open_checkpoint(model))
            loaded += 1
        except InputError as error:
            assert "\n" not in str(error)
    assert 40 < loaded < 360


MEASURE = """
import sys, torch
from pathlib import Path
from transformer.model import Transformer
from weights.checkpoint import load_model, open_checkpoint

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

checkpoint = open_checkpoint(Path(sys.argv[1]))
torch.nn.Linear(64, 64)(torch.zeros(1, 64))  # what torch itself needs
Path("/proc/self/clear_refs").write_text("5")
before = peak()
model = load_model(checkpoint, torch.float32)
for parameter in model.parameters():
    parameter.sum()  # mapped weights count once they are read
print(peak() - before, sum(p.numel() * 4 for p in model.parameters()))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for its high-water mark")
@pytest.mark.parametrize(("dtype", "tied"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)])
def test_loading_takes_hardly_more_than_the_weights(tmp_path: Path, dtype: torch.dtype, tied: bool) -> None:
    """200 MB, half of it embeddings: the largest tensor is far more than what may be spent on top."""
    layer = replace(tiny_config().layers[0], mlp_width=2048)
    config = tiny_config(vocab_size=40_000, width=512, layers=(layer,) * (8 if tied else 4), heads=64, tied=tied)
    save_model(tiny_model(config).to(dtype), tmp_path)
    if tied:
        change_tensors(tmp_path, lambda t: t | {"lm_head.weight": t["model.embed_tokens.weight"]})
    result = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    used, weights = map(int, result.stdout.split())
    assert weights > 180e6
    assert used <= 1.1 * weights, f"{used / weights:.2f} times the weights"
