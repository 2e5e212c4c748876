"""Loading the compiled module: every failure says its reason and a remedy."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from wpnode_ext.ops import backend


def fail_to_import(
    monkeypatch: pytest.MonkeyPatch, broken: str, error: ImportError
) -> None:
    real = importlib.import_module

    def import_module(name: str):
        if name == broken:
            raise error
        return real(name)

    monkeypatch.setattr(backend, "import_module", import_module)


def test_a_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_import(monkeypatch, "torch", ModuleNotFoundError("No module named 'torch'"))
    with pytest.raises(ImportError, match="needs torch, which cannot.*pip install"):
        backend._import_torch()


def test_an_old_torch_is_refused_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.9.1+cpu"))
    with pytest.raises(ImportError, match=r"needs torch >= 2\.10; got 2\.9\.1\+cpu\."):
        backend._import_torch()


def test_a_package_that_was_not_compiled_says_how_to_install_it() -> None:
    with pytest.raises(ImportError, match=r"_missing is missing in .*`pip install \.`"):
        backend._import_compiled("wpnode_ext._missing", "2.13.0")


def test_a_symbol_that_torch_lacks_is_reported_with_the_torch_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = ImportError("undefined symbol: aoti_torch_new")
    fail_to_import(monkeypatch, "wpnode_ext._C", error)
    expected = r"does not load under torch 2\.10\.0: undefined symbol: .*Reinstall with"
    with pytest.raises(ImportError, match=expected):
        backend._import_compiled("wpnode_ext._C", "2.10.0")
