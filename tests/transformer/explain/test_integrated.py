from __future__ import annotations

import pytest
import torch

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from transformer.explain.gradient import gradient_times_input
from transformer.explain.integrated import gauss_legendre, integrated_gradients
from transformer.explain.target import Target


def test_quadrature_is_exact_for_polynomials() -> None:
    places, weights = gauss_legendre(5)
    for degree in range(10):
        assert float((weights * places**degree).sum()) == pytest.approx(1 / (degree + 1), abs=1e-14)


@pytest.mark.parametrize("name", [name for name in ZOO if name != "experts"])  # routers jump: no gradient says so
def test_shares_add_up_to_the_difference_from_blanks(name: str) -> None:
    model = zoo_model(name)
    found = integrated_gradients(model, IDS, Target(12, 120, 7), blank=0, steps=100)
    blanks = model.hidden(torch.zeros_like(as_batch()))
    assert found.logit == pytest.approx(float(Target(12, 120, 7).of(model, model.hidden(as_batch()))[0]))
    assert found.blank_logit == pytest.approx(float(Target(12, 120, 7).of(model, blanks)[0]))
    assert abs(found.error) < 0.05 * max(1.0, abs(found.logit - found.blank_logit))


def test_later_tokens_have_no_share(name: str = "pre") -> None:
    model = zoo_model(name)
    found = integrated_gradients(model, IDS, Target(6, 120), blank=0, steps=8)
    assert any(found.shares[:7]) and not any(found.shares[7:])


def test_a_blank_token_has_no_share() -> None:
    found = integrated_gradients(zoo_model("pre"), IDS, Target(12, 120), blank=IDS[4], steps=8)
    assert found.shares[4] == 0 and found.shares[3] != 0


@pytest.mark.parametrize("name", ["pre", "post", "alibi"])
def test_gradient_times_input_is_the_slope_along_the_embedding(name: str) -> None:
    from transformer.explain.integrated import Embedded

    model, target = zoo_model(name), Target(8, 120)
    tap = Embedded()
    model.hidden(as_batch(), tap=tap)
    assert tap.x is not None
    step = 1e-6

    def logit(factor: float) -> float:
        x = tap.x.clone()
        x[0, 3] *= factor
        return float(target.of(model, model.hidden(as_batch(), tap=Embedded(x)))[0])

    slope = (logit(1 + step) - logit(1 - step)) / (2 * step)
    found = gradient_times_input(model, IDS, target)
    assert len(found) == 9
    assert found[3] == pytest.approx(slope, rel=1e-5, abs=1e-7)
