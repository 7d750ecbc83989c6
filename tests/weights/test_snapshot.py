from __future__ import annotations

import json
from pathlib import Path

import pytest

from weights.snapshot import collect, fault, newest_valid, prune, save_snapshot, steps


def write(directory: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        (directory / name).write_bytes(f"{name} of {directory.name}".encode() * 20)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        save_snapshot(tmp_path / "checkpoints", step, write)
    return tmp_path / "checkpoints"


def newest(checkpoints: Path) -> tuple[str | None, list[str]]:
    warnings: list[str] = []
    found = newest_valid(checkpoints, warnings.append)
    return found.name if found else None, warnings


def test_the_newest_is_named_and_listed(checkpoints: Path) -> None:
    assert steps(checkpoints) == [30, 20, 10] and (checkpoints / "latest").read_text() == "step-30\n"
    assert newest(checkpoints) == ("step-30", [])
    table = json.loads((checkpoints / "step-30/manifest.json").read_text())
    assert table["state.json"]["size"] == (checkpoints / "step-30/state.json").stat().st_size


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_every_flipped_bit_is_found(checkpoints: Path, name: str) -> None:
    path = checkpoints / "step-30" / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert fault(checkpoints / "step-30") is not None, place
    assert newest(checkpoints)[0] == "step-20"
    path.write_bytes(whole)
    assert fault(checkpoints / "step-30") is None


def test_a_damaged_one_is_told_of_once_and_passed_over(checkpoints: Path) -> None:
    (checkpoints / "step-30/model.safetensors").write_bytes(b"short")
    found, warnings = newest(checkpoints)
    assert found == "step-20" and len(warnings) == 1
    assert "step-30/model.safetensors has 5 bytes, its manifest says" in warnings[0]


def test_a_manifest_cannot_leave_out_what_resuming_needs(checkpoints: Path) -> None:
    manifest = checkpoints / "step-30/manifest.json"
    table = json.loads(manifest.read_text())
    del table["state.json"]
    manifest.write_text(json.dumps(table))
    assert newest(checkpoints)[0] == "step-20"


def test_nothing_is_left_of_a_failed_save(checkpoints: Path) -> None:
    def fail(directory: Path) -> None:
        write(directory)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        save_snapshot(checkpoints, 40, fail)
    assert newest(checkpoints) == ("step-30", []) and not list(checkpoints.glob("*.tmp"))


def test_orphans_are_collected(checkpoints: Path) -> None:
    (checkpoints / "step-40.tmp").mkdir()
    (checkpoints / "step-40.tmp/model.safetensors").write_bytes(b"half")
    (checkpoints / "latest.tmp").write_text("st")
    collect(checkpoints)
    assert sorted(p.name for p in checkpoints.iterdir()) == ["latest", "step-10", "step-20", "step-30"]


def test_old_ones_thin_out_to_weights_at_doubling_steps(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for step in range(10, 310, 10):
        save_snapshot(checkpoints, step, write)
        prune(checkpoints, 2)
    kept = {step: (checkpoints / f"step-{step}/optimizer.safetensors").exists() for step in steps(checkpoints)}
    assert kept == {300: True, 290: True, 260: False, 130: False, 70: False, 40: False, 20: False, 10: False}
    for step, whole in kept.items():
        assert (fault(checkpoints / f"step-{step}") is None) == whole
        table = json.loads((checkpoints / f"step-{step}/manifest.json").read_text())
        assert all((checkpoints / f"step-{step}" / name).exists() for name in table)


def test_no_checkpoints_yet(tmp_path: Path) -> None:
    assert newest(tmp_path / "none") == (None, [])
    collect(tmp_path / "none")
