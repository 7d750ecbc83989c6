"""tfm kernels, and eight bits on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process import tfm
from tests.weights.gguf.models import write_llama
from tests.weights.native.stub import RIGHT, write_source


def test_build_prints_where_the_library_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights.native.library.SOURCE", write_source(tmp_path / "kernels.cpp", RIGHT))
    monkeypatch.setattr("weights.native.library._torch_sgemm", lambda: None)  # so that it is not asked to train
    result = tfm("kernels", "build", XDG_CACHE_HOME=str(tmp_path))
    path = Path(result.out.decode().strip())
    assert result.code == 0 and path.is_file() and path.is_relative_to(tmp_path)


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tfm").write_text("in the way")
    result = tfm("kernels", "build", XDG_CACHE_HOME=str(tmp_path))
    assert result.code == 1 and "could not be built" in result.error


@pytest.mark.parametrize("command", ["generate", "explain"])
def test_eight_bits_on_request(tiny: Path, command: str) -> None:
    for options in ((), ("--quantize", "int8")):
        assert tfm(command, "-m", str(tiny), "the fox ran", *options).code == 0
    assert tfm(command, "-m", str(tiny), "the fox", "--quantize", "int3").code == 2


def test_stats_say_what_ran(tiny: Path) -> None:
    result = tfm("generate", "-m", str(tiny), "the fox", "-n", "3", "--stats", "--quantize", "int8", "--seed", "1")
    assert b"int8 weights, float32 on cpu" in result.err


def test_a_gguf_file_generates_like_a_directory(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.gguf")
    result = tfm("generate", "-m", str(path), "the fox", "-n", "4", "--json", "-t", "0")
    answer = json.loads(result.out)
    assert result.code == 0 and answer["usage"]["completion_tokens"] <= 4
    listed = tfm("models", TFM_PATH=str(tmp_path), COLUMNS="200")
    assert b"model.gguf" in listed.out and b"llama" in listed.out
