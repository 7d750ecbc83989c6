from __future__ import annotations

from pathlib import Path

from tests.process import scratch, tfm


def test_what_can_be_named_is_listed(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    scratch(broken / "config.json", "{")
    out = tfm("models", TFM_PATH=f"{tiny.parent}:{tmp_path}", COLUMNS="200").out.decode()
    assert "tiny" in out and "llama" in out and "2 × 32" in out
    assert "broken" in out and "not valid JSON" in out


def test_show_counts_parameters_and_memory(tiny: Path) -> None:
    result = tfm("models", "show", str(tiny), "--context", "100")
    out = result.out.decode()
    parameters = 320 * 32 * 2 + 32 + 2 * (2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32)
    assert result.code == 0 and f"{parameters:,}" in out
    assert "4 heads of 8, 2 of keys and values" in out and "320 × 32" in out
    cache = 2 * 100 * 2 * 2 * 8
    assert f"{4 * cache / 1000:.3g} kB" in out and "KV cache of 100 tokens" in out


def test_show_refuses_what_generate_refuses(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    scratch(tmp_path / "m" / "config.json", '{"model_type": "mamba"}')
    result = tfm("models", "show", str(tmp_path / "m"))
    assert result.code == 2 and "model_type 'mamba' is not supported" in result.error
