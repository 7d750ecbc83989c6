from __future__ import annotations

import pytest

from transformer.errors import InputError
from transformer.shape import ARCHITECTURES, PRESETS, SIZES, choose, decoder
from weights.families.registry import write_config


@pytest.mark.parametrize(
    ("preset", "family"), [("gpt2", "gpt2"), ("llama", "llama"), ("qwen3", "qwen3"), ("vaswani", "tfm")]
)
def test_architectures_are_the_families_they_are_named_after(preset: str, family: str) -> None:
    assert write_config(decoder(choose([preset], {})))[0].model_type == family


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_decoder(preset: str) -> None:
    assert decoder(choose([preset], {})).width % 64 == 0


def test_sizes_grow() -> None:
    volumes = [PRESETS[name]["layers"] * PRESETS[name]["width"] ** 2 for name in SIZES]
    assert volumes == sorted(volumes)


def test_a_size_an_architecture_and_single_choices_combine() -> None:
    config = decoder(choose(["nano", "gpt2"], {"layers": 3, "position": "alibi"}))
    assert (len(config.layers), config.width, config.norm.kind) == (3, 128, "layer")
    assert config.alibi is not None and config.position_embedding == "none"


def test_a_gated_mlp_has_as_many_parameters_as_a_plain_one() -> None:
    gated, plain = (decoder(choose([], {"width": 384, "mlp": mlp, "heads": 6})) for mlp in ("swiglu", "gelu"))
    assert abs(3 * gated.layers[0].mlp_width - 2 * plain.layers[0].mlp_width) <= 12


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"mlp": "tanh"}, "mlp must be one of swiglu"),
        ({"position": "up"}, "position must be one of rotary"),
        ({"norm": "batch"}, "norm must be one of rms, layer"),
        ({"width": 100, "heads": 3}, "width 100 cannot be divided among 3 heads"),
        ({"kv_heads": 3}, "4 heads cannot share 3"),
        ({"layers": 0}, "at least one layer"),
    ],
)
def test_impossible_choices_are_refused(choices: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decoder(choose([], choices))


def test_unknown_presets_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=f"'huge' is unknown; there are nano.*{list(ARCHITECTURES)[-1]}"):
        choose(["huge"], {})
