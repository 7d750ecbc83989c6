"""Building the kernels, and finding them again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.weights.native.stub import BROKEN, RIGHT, WRONG, write_source
from transformer.errors import EnvironmentFailed
from weights.native import library


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tfm"


def test_nothing_is_found_before_it_was_built(user_cache: Path) -> None:
    assert library.find_native() is None
    assert not user_cache.exists()


def test_what_was_built_is_found_by_its_source(
    user_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_source(tmp_path / "kernels.cpp", RIGHT)
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.setattr(library, "_torch_sgemm", lambda: None)  # so that it is not asked to train
    path = library.build_native()
    assert path == library.library_path() and list(user_cache.iterdir()) == [path]
    assert library.find_native() is not None
    write_source(source, RIGHT + "// changed")
    assert library.find_native() is None


def test_another_processor_needs_a_library_of_its_own(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = library.library_path()
    monkeypatch.setattr(library, "_processor", lambda: "another")
    assert library.library_path() != here


def test_a_file_that_is_no_library_counts_as_none(user_cache: Path) -> None:
    user_cache.mkdir()
    library.library_path().write_bytes(b"not a library")
    assert library.find_native() is None


def test_no_compiler_is_one_line(user_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(EnvironmentFailed, match=r"no C\+\+ compiler found: looked for CXX, c\+\+, g\+\+, clang\+\+"):
        library.build_native()


def test_a_compiler_that_fails_is_one_line(user_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "SOURCE", write_source(tmp_path / "kernels.cpp", BROKEN))
    with pytest.raises(EnvironmentFailed) as error:
        library.build_native()
    assert "failed with 1: " in str(error.value) and "\n" not in str(error.value)
    assert list(user_cache.iterdir()) == []  # nothing half built is left


@pytest.mark.parametrize("source", [WRONG, RIGHT], ids=["products", "what trains"])
def test_kernels_that_compute_wrong_numbers_are_not_kept(
    user_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(library, "SOURCE", write_source(tmp_path / "kernels.cpp", source))
    with pytest.raises(EnvironmentFailed, match="wrong numbers"):
        library.build_native()
    assert list(user_cache.iterdir()) == []


@pytest.mark.parametrize("flags", [["-mavx512f", "-mfma"], ["-march=x86-64"]])
def test_the_source_fits_other_processors(flags: list[str]) -> None:
    """It cannot run here, but it must compile."""
    compiler = next(filter(None, map(shutil.which, library.COMPILERS)))
    command = [compiler, "-std=c++17", *flags, "-fopenmp", "-w", "-fsyntax-only", str(library.SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized" in done.stderr or "unsupported" in done.stderr:
        pytest.skip("this compiler makes no code for such a processor")
    assert done.returncode == 0, done.stderr
