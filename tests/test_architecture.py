"""The house: which way imports point, what starts without torch, what is never used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "transformer": {"weights", "cli", "typer", "rich", "safetensors", "pathlib", "transformers"},
    "weights": {"cli", "typer", "rich", "transformers"},
    "cli": {"transformers", "click"},
}


def modules(package: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_imports_point_one_way() -> None:
    seen = 0
    for package, forbidden in FORBIDDEN.items():
        for path, tree in modules(package):
            wrong = {name for name in imported(tree) if name.split(".")[0] in forbidden}
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"
            seen += 1
    assert seen > 30


def test_only_the_command_line_prints() -> None:
    for package in ("transformer", "weights"):
        for path, tree in modules(package):
            calls = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
            assert "print" not in calls and "input" not in calls, path


def test_nothing_unpickles() -> None:
    for package in FORBIDDEN:
        for path, tree in modules(package):
            assert not imported(tree) & {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}, path
            loads = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
            assert not loads & {"torch.load", "torch.save", "numpy.load", "np.load"}, path


def test_help_and_models_need_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['tfm', {}]\n"
        "from cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({{'torch', 'tokenizers', 'numpy'}} & set(sys.modules)), file=sys.stderr)"
    )
    for arguments in ("'--help'", "'generate', '--help'", "'models'"):
        run = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert run.stderr.splitlines()[-1] == "[]" and run.stdout


def test_python_m_cli_is_tfm() -> None:
    run = subprocess.run([sys.executable, "-m", "cli", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith("tfm ")
