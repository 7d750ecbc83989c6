from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tiny import write_tiny

torch.set_num_threads(1)  # models here are too small to share between cores


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model directory."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny")
