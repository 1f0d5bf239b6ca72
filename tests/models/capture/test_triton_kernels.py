"""The kernels for NVIDIA GPUs: on a GPU, or on a CPU under Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.models.capture import kernel_cases


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", kernel_cases.all_checks())
def test_on_a_gpu(name):
    differences = kernel_cases.all_checks()[name]()
    assert differences
    assert max(differences.values()) <= kernel_cases.TOLERANCE, differences


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_under_the_interpreter():
    # In a process of its own: the variable must be set before Triton is imported.
    command = [sys.executable, "-m", "tests.models.capture.kernel_cases"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == len(done.stdout.splitlines()) >= 18
