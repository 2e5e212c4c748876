"""Fixtures of all tests: devices, precisions, tolerances, seeds, folders, data."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

# One thread, here and in processes that tests start: waiting for a busy core would turn
# a test of seconds into one of minutes. Tests of threads set their own number.
os.environ["OMP_NUM_THREADS"] = os.environ.get("WPNODE_TEST_THREADS", "1")
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]

# Processes that tests start find the modules beside this file, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)

import pytest
import torch

import shape_checks
import trajectories

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# Some virtual machines report AMX but refuse its instructions, which crashes oneDNN.
# oneDNN reads this variable at its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Must precede any import of the package; WPNODE_SHAPE_CHECKS=0 switches it off.
if os.environ.get("WPNODE_SHAPE_CHECKS", "1") != "0":
    shape_checks.switch_on()

# Largest error allowed, relative to the largest value expected; sums over a segment
# scale it by `ell`. A looser bound in a test carries its reason.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


def pytest_configure(config: pytest.Config) -> None:
    # Many tests fit useless models of a few epochs. This filter is not in
    # pyproject.toml, where it would import the package before the shape checks.
    config.addinivalue_line(
        "filterwarnings", "ignore::wpnode_ext.model.verdict.PoorFit"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    # All skips come from this line, so that `-ra` prints one line with their number.
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch sees none")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def tolerance(dtype: torch.dtype) -> float:
    """Entry of `TOLERANCES` for the test's `dtype`."""
    return TOLERANCES[dtype]


@pytest.fixture(autouse=True)
def seed() -> Iterator[int]:
    """Seeds every test, and restores the generator of torch afterwards."""
    value = trajectories.draw(20240917)
    trajectories.restart(value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(value)
        yield value


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Real data beside the checkout; the test skips where they are missing."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[2] / "shared/data" / name
        if not path.exists():
            pytest.skip(f"needs {name}, which is not beside the checkout")
        return path

    return find
