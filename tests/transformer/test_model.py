"""The numbers promised, for the shapes that training can make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.parity import broken, of_shape
from tests.reference import Weights, random_ids
from tests.shapes import SHAPES
from tests.tiny import tiny_config, tiny_model
from transformer.config import Config, Layer, Rope
from transformer.errors import InputError
from transformer.tap import Fused


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("name", SHAPES)
def test_promises(name: str) -> None:
    assert not broken(of_shape(SHAPES[name], length=14))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_promises_at_length(name: str) -> None:
    assert not broken(of_shape(SHAPES[name], length=100))


@pytest.mark.parametrize("name", SHAPES)
def test_no_token_sees_what_follows(name: str) -> None:
    model, ids = tiny_model(SHAPES[name]), random_ids(1, 12)
    other = ids.clone()
    other[0, 8:] = 5
    assert torch.equal(model(ids)[0, :8], model(other)[0, :8])
    assert not torch.equal(model(ids)[0, 8:], model(other)[0, 8:])


def test_a_window_hides_what_lies_behind_it() -> None:
    layer = Layer(mlp_width=48, attention_scale=8**-0.5, rope=Rope(dim=8), window=4)
    model, ids = tiny_model(tiny_config(layers=(layer,))), random_ids(1, 12)
    other = ids.clone()
    other[0, 7] = (ids[0, 7] + 1) % 97
    same = (model(ids) == model(other)).all(-1)[0].tolist()
    assert same == [i < 7 or i >= 11 for i in range(12)]  # 7 to 10 see it: itself and the three after


def test_rows_of_attention_sum_to_one_and_masked_cells_are_zero() -> None:
    tap = Weights()
    tiny_model(SHAPES["both norms, caps, windows"])(random_ids(2, 30), tap=tap)
    for weights in tap.seen:
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
        assert not weights.triu(1).any()
    assert not tap.seen[0].tril(-4).any()


def test_every_addition_to_the_stream_passes_the_tap() -> None:
    class Adder(Fused):
        def __init__(self) -> None:
            self.stream, self.order = torch.zeros(()), list[tuple[int, str]]()

        def write(self, layer: int, part: str, x: torch.Tensor) -> torch.Tensor:
            self.stream = self.stream + x
            self.order.append((layer, part))
            return x

    for name in ("rotary", "parallel", "both norms, caps, windows"):
        tap = Adder()
        model = tiny_model(SHAPES[name]).double()
        final = model.hidden(random_ids(1, 6), tap=tap)
        assert torch.allclose(tap.stream, final, atol=1e-12)
        layers = range(len(model.config.layers))
        assert tap.order == [(-1, "embedding"), *((i, part) for i in layers for part in ("attention", "mlp"))]


def test_half_precision_stays_close_to_full() -> None:
    """Norms, softmax, rotary tables and routers compute in fp32 even then."""
    for name in ("rotary", "experts", "alibi", "2017"):
        model = tiny_model(SHAPES[name])
        ids = random_ids(1, 20)
        exact = model(ids)
        rough = model.to(torch.bfloat16)(ids)
        assert rough.dtype == torch.bfloat16
        assert (rough.float() - exact).abs().mean() < 0.1 * exact.abs().mean()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"heads": 4, "kv_heads": 3}, "4 heads cannot share 3"),
        ({"layers": ()}, "at least one layer"),
        ({"vocab_size": 0}, "vocab_size must be positive, got 0"),
        ({"residual": "both"}, "residual must be one of"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"position_embedding": "sinusoidal", "width": 33}, "even width, got 33"),
        ({"head_dim": 4}, "8 rotary dimensions in heads of 4"),
    ],
)
def test_a_config_that_makes_no_decoder_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        tiny_config(**changes)


def test_a_config_is_a_value() -> None:
    assert tiny_config() == tiny_config()
    assert hash(tiny_config()) == hash(tiny_config())
    assert isinstance(tiny_config(), Config)
