"""Names, limits and results of the machines of `make test-machines`."""

import pytest

import machines
from machines import Machine, every_machine


def test_machine_survives_text_and_back() -> None:
    names = [str(machine) for machine in every_machine()]
    assert len(names) == len(set(names)) == 3 * 3 * 2 + 1
    assert [str(Machine.of(name)) for name in names] == names
    assert Machine.of("default:avx512:1:busy").busy


@pytest.mark.parametrize("text", ["avx2", "avx2:avx2", "avx2:sse:1", "avx2:avx2:0"])
def test_invalid_names_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be written torch:package:threads"):
        Machine.of(text)


def test_missing_instructions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = "print('avx2')\nprint('baseline')"
    monkeypatch.setattr(machines, "CAPABILITIES", found)
    assert Machine.of("avx2:baseline:1").missing() == ""
    missing = Machine.of("avx512:avx2:1").missing()
    assert missing == "torch has no avx512, the package has no avx2"


def test_failures_come_from_the_output_of_pytest(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(machines, "LOGS", tmp_path)
    tests = tmp_path / "test_two.py"
    tests.write_text("def test_good(): pass\ndef test_bad(): assert 0\n")
    machine = Machine.of("default:baseline:1")
    last, failures = machines.run_suite(machine, [str(tests)])
    assert "1 failed, 1 passed" in last
    assert len(failures) == 1 and "test_bad" in failures[0]
    last, failures = machines.run_suite(machine, [str(tmp_path / "test_none.py")])
    assert len(failures) == 1
