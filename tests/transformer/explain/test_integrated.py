from __future__ import annotations

import pytest
import torch

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from transformer.explain.gradient import gradient_times_input
from transformer.explain.integrated import Embedded, gauss_legendre, integrated_gradients
from transformer.explain.target import Target


def test_quadrature_is_exact_for_polynomials() -> None:
    places, weights = gauss_legendre(5)
    for degree in range(10):
        assert float((weights * places**degree).sum()) == pytest.approx(1 / (degree + 1), abs=1e-14)


@pytest.mark.parametrize("name", [name for name in ZOO if name != "experts"])  # routers jump: no gradient says so
def test_shares_add_up_to_the_difference_from_a_blank_text(name: str) -> None:
    model, target = zoo_model(name), Target(12, 120, 7)
    found = integrated_gradients(model, IDS, target)
    assert found.logit == pytest.approx(float(target.reader(model)(model.hidden(as_batch()))[0]))
    assert abs(found.error) < 0.02 * max(1.0, abs(found.logit - found.blank_logit))
    assert found.shares[0] == 0 and sum(map(abs, found.shares)) > 0.1


def test_the_blank_text_is_the_mean_of_the_vocabulary_behind_the_first_token() -> None:
    model, target = zoo_model("narrow"), Target(12, 120)
    found = integrated_gradients(model, IDS, target)
    with torch.no_grad():
        model.embed.weight[1:] = model.embed.weight.mean(0)  # every token but 0 is the mean now
        first = zoo_model("narrow").embed.weight[IDS[0]]
        model.embed.weight[0] = first
    blank = target.reader(model)(model.hidden(as_batch([0] + [1] * 12)))
    assert found.blank_logit == pytest.approx(float(blank[0]), abs=1e-9)


def test_later_tokens_have_no_share() -> None:
    found = integrated_gradients(zoo_model("pre"), IDS, Target(6, 120))
    assert any(found.shares[:7]) and not any(found.shares[7:])


@pytest.mark.parametrize("name", ["pre", "post", "alibi"])
def test_gradient_times_input_is_the_slope_along_the_embedding(name: str) -> None:
    model, target = zoo_model(name), Target(8, 120)
    tap = Embedded()
    model.hidden(as_batch(), tap=tap)
    assert tap.x is not None
    step = 1e-6

    def logit(factor: float) -> float:
        x = tap.x.clone()
        x[0, 3] *= factor
        return float(target.reader(model)(model.hidden(as_batch(), tap=Embedded(x)))[0])

    slope = (logit(1 + step) - logit(1 - step)) / (2 * step)
    found = gradient_times_input(model, IDS, target)
    assert len(found) == 9
    assert found[3] == pytest.approx(slope, rel=1e-5, abs=1e-7)
