"""The tree: direction of imports, its map, links, no paths of one machine."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "wpnode_ext"

# Folders of the package, lowest first, as the map of the tree lists them.
MAP = ROOT / "docs" / "tree.md"
FOLDERS = re.findall(r"^\| `(\w+)` \|", MAP.read_text(encoding="utf-8"), re.MULTILINE)
# Files beside the folders: the public names, the command, the compiled module.
TOP = {"__init__", "__main__", "_C"}
# Optional, or slow to import: imported inside the functions that need them.
LAZY = {
    "dysts",
    "matplotlib",
    "omegaconf",
    "pandas",
    "scipy",
    "tensorboard",
    "torchdiffeq",
    "tqdm",
    "wandb",
    "xarray",
    "zarr",
}


def layer_of(module: str) -> int:
    if module == "_C":
        return -1
    assert module in FOLDERS, f"{module} is not in {MAP.name}; give it a line there."
    return FOLDERS.index(module)


def top_module(path: Path, package: Path) -> str:
    return path.relative_to(package).with_suffix("").parts[0]


def imported_modules(path: Path, package: Path) -> Iterator[tuple[str, int]]:
    """Modules right below ``package`` that ``path`` imports, with the line."""
    parents = path.relative_to(package.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            full_names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(parents[: len(parents) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            full_names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for name in full_names:
            parts = name.split(".")
            if parts[0] == package.name and len(parts) > 1:
                yield parts[1], node.lineno


def reversed_arrows(package: Path) -> list[str]:
    found = []
    for path in sorted(package.rglob("*.py")):
        module = top_module(path, package)
        if module in TOP:
            continue
        for target, line in imported_modules(path, package):
            where = f"{path.relative_to(package)}:{line}"
            if layer_of(target) > layer_of(module):
                found.append(f"{where} imports {target}, which stands above it")
            if target == "baselines" and module not in ("baselines", "cli"):
                found.append(f"{where} imports baselines, which only commands may")
    return found


def eager_imports(package: Path) -> list[str]:
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            found += [
                f"{path.relative_to(package)}:{node.lineno} imports {name}"
                for name in names
                if name.split(".")[0] in LAZY
            ]
    return found


def tree_files() -> list[Path]:
    """Files under version control; outside a checkout, all but build products."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode == 0:
        names = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        skipped = {"build", "dist", ".venv", ".git"}
        names = [
            p for p in ROOT.rglob("*") if p.relative_to(ROOT).parts[0] not in skipped
        ]
    return [path for path in names if path.is_file()]


def test_modules_import_from_lower_layers_only() -> None:
    assert reversed_arrows(PACKAGE) == []


def test_map_of_the_tree_lists_every_folder() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    top = {folder.relative_to(PACKAGE).parts[0] for folder in folders}
    assert sorted(FOLDERS) == sorted(top)
    assert {path.stem for path in PACKAGE.glob("*.py")} <= TOP


def test_tests_mirror_the_folders_of_the_package() -> None:
    others = {"cuda_sim", "fixtures", "fuzz", "project"}
    tests = ROOT / "python_tests"
    stray = [
        str(path.relative_to(tests))
        for path in tests.rglob("test_*.py")
        if path.relative_to(tests).parts[0] not in {*FOLDERS, *others}
    ]
    assert stray == []


@pytest.mark.parametrize(
    "statement",
    [
        "from ..ops import corr",
        "from ..ops.functions import corr",
        "from .. import ops",
        "import wpnode_ext.ops.functions",
    ],
)
def test_reversed_import_is_found_in_any_spelling(
    tmp_path: Path, statement: str
) -> None:
    package = tmp_path / "wpnode_ext"
    for name in ("common", "ops"):
        (package / name).mkdir(parents=True)
    (package / "ops" / "backend.py").write_text("from .. import _C\n")
    (package / "common" / "files.py").write_text(f"\n{statement}\n")
    assert reversed_arrows(package) == [
        "common/files.py:2 imports ops, which stands above it"
    ]


def test_lazy_packages_are_imported_inside_functions_only() -> None:
    assert eager_imports(PACKAGE) == []


def test_importing_the_package_loads_no_lazy_package() -> None:
    # In another process, after torch: imports of torch itself do not count.
    script = (
        "import sys, torch; before = set(sys.modules); import wpnode_ext;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "wpnode_ext" in loaded.split()
    assert LAZY & set(loaded.split()) == set()


def test_no_file_contains_a_path_of_one_machine() -> None:
    folders = "|".join(["home", "root", "Users", "tmp", "work", "opt", "mnt"])
    pattern = re.compile(rf"(?<![\w.~$}})/*-])/({folders})/\w")
    found = []
    for path in tree_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []


def test_links_between_files_resolve() -> None:
    broken = []
    for path in tree_files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            outside = target.startswith(("http:", "https:", "mailto:"))
            if not outside and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []
