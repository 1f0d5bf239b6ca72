"""Linear layers at the position of the prediction only: found by trying, and equal in value."""

from threading import Thread

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnflow.study.case import make_case
from attnflow.study.masked_model import MaskedModel
from attnflow.study.prediction_row import at_position, find_layers
from tests.models.checkpoints import make_loaded
from tests.study.small_models import make_llama

N = 5
CASES = {
    "classifier": (make_loaded, "the key to cabinets is here"),
    "masked_lm": (lambda: make_loaded("BertForMaskedLM"), "is the key [MASK] here"),
    "causal_lm": (make_llama, "the key to cabinets is here"),
}


class Toy(nn.Module):
    """Positions are mixed, and then not; the prediction reads one position, or all of them."""

    def __init__(self, reads: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.reads = reads
        self.mixed, self.first, self.second = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixed(x).mean(1, keepdim=True) * x
        if self.reads == "twice":
            x = x + self.second(x).mean(1, keepdim=True) * x
        x = x + self.second(torch.relu(self.first(x)))
        return x[:, 2] if self.reads != "mean" else x.mean(1)


def find(model: Toy) -> list[str]:
    inputs = torch.randn(2, N, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layers = find_layers(model, lambda: model(inputs), N, 2)
        expected = model(inputs)
        with at_position(layers, N, 2):
            torch.testing.assert_close(model(inputs), expected)
    names = {layer: name for name, layer in model.named_modules()}
    return [names[layer] for layer in layers]


def test_layers_after_the_last_mixing_need_one_position() -> None:
    assert find(Toy("one")) == ["second", "first"]


def test_a_mean_over_positions_needs_all_of_them() -> None:
    assert find(Toy("mean")) == []


def test_a_layer_that_runs_twice_is_left_alone() -> None:
    assert find(Toy("twice")) == ["first"]


def test_other_threads_are_not_affected() -> None:
    model, results = Toy("one"), []
    inputs = torch.randn(2, N, 3)
    expected = model.first(inputs)
    with at_position([model.first], N, 2):
        thread = Thread(target=lambda: results.append(model.first(inputs)))
        thread.start()
        thread.join()
        assert model.first(inputs).shape == (2, 1, 3)
    torch.testing.assert_close(results, [expected])
    assert model.first(inputs).shape == (2, N, 3)


@pytest.mark.parametrize("task", list(CASES))
@pytest.mark.parametrize("replacement", [None, "remove", "mean"])
def test_values_are_those_of_the_whole_model(task: str, replacement: str | None) -> None:
    make, text = CASES[task]
    case = make_case(make(), text)
    sets = np.asarray(list(np.ndindex(*[2] * len(case.units))), dtype=bool)
    model, plain = (MaskedModel(case, replacement) for _ in range(2))  # type: ignore[arg-type]
    assert len(model.last_layers) >= 3  # output projection and feed-forward layer
    plain.last_layers = ()
    np.testing.assert_allclose(model.log_probability(sets), plain.log_probability(sets), atol=1e-5)
