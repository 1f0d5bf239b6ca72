"""How many threads a model runs on while it is measured."""

from types import SimpleNamespace

import pytest
import torch

from attnflow import load_model
from attnflow.paper.experiments.agreement import encode
from attnflow.paper.experiments.options import Options
from attnflow.paper.experiments.running import SMALL, model_threads
from attnflow.paper.experiments.sentences import read_agreement


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def model_of(size):
    part = SimpleNamespace(numel=lambda: size)
    return SimpleNamespace(model=SimpleNamespace(parameters=lambda: [part]))


@pytest.mark.parametrize(
    ("size", "asked", "expected"), [(SMALL - 1, None, 1), (SMALL, None, 3), (1, 2, 2)]
)
def test_a_small_model_has_one_thread_unless_told(size, asked, expected):
    with model_threads(model_of(size), asked):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 3


def test_threads_are_as_before_when_a_measurement_fails():
    with pytest.raises(ZeroDivisionError), model_threads(model_of(1), None):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def test_texts_are_measured_on_these_threads():
    options = Options(data="grammar", examples=3)
    texts = encode(load_model(), read_agreement(options).natural, options)
    seen = []

    def compute(chunk, _labels):
        seen.append(torch.get_num_threads())
        return [{} for _ in chunk]

    texts.measure(compute, {}, None)
    assert seen == [1]
    assert torch.get_num_threads() == 3
