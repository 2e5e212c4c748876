"""Tables of text as people write them, and the reasons for refusing some."""

from pathlib import Path

import pytest
import torch

from wpnode_ext.data import load_csv, load_series


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_header_names_time_and_state(tmp_path) -> None:
    path = write(tmp_path, "time,x,y\n0,1,10\n0.5,2,20\n1.0,3,30\n1.5,4,40\n")
    series = load_csv(path)
    assert series.names == ("x", "y") and series.dt == pytest.approx(0.5)
    assert series.v.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40]]
    assert series.meta["source"] == "data.csv"


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_cells_may_be_separated_in_several_ways(tmp_path, mark: str) -> None:
    text = "# made by a logger\nt,x\n\n0,1e0\n1, 2\n# pause\n2,3.0\n".replace(",", mark)
    series = load_series(write(tmp_path, text, "data.txt"))
    assert series.v[:, 0].tolist() == [1, 2, 3]


def test_empty_cells_and_words_are_missing_values(tmp_path) -> None:
    path = write(tmp_path, "t,x,y\n0,1,2\n1,,2\n2,NA,2\n3,4,nan\n4,5,6\n")
    series = load_csv(path)
    assert series.mask is not None
    assert series.mask.nonzero().tolist() == [[1, 0], [2, 0], [3, 1]]
    assert series.v[:3, 0].tolist() == [1, 2, 3]


def test_dates_count_steps_and_absent_ones_are_missing(tmp_path) -> None:
    hours = ("00", "06", "12", "18")
    rows = [f"2020-02-{d:02d}T{h}:00Z,{d}" for d in (28, 29) for h in hours]
    del rows[5]
    path = write(tmp_path, "date,x\n" + "\n".join(rows))
    series = load_csv(path)
    assert series.dt == 1.0 and series.n_samples == 8
    assert series.missing.nonzero().flatten().tolist() == [5]
    assert series.meta["seconds_per_unit"] == 6 * 3600
    assert load_csv(path, time_unit="h").dt == pytest.approx(6.0)
    with pytest.raises(ValueError, match="`time_unit` must be 'step'.*got 'week'"):
        load_csv(path, time_unit="week")


def test_irregular_times_stay_irregular(tmp_path) -> None:
    series = load_csv(write(tmp_path, "t,x\n0,1\n0.3,2\n1.1,3\n1.2,4\n"))
    assert series.t is not None and series.t.tolist() == [0.0, 0.3, 1.1, 1.2]


def test_columns_have_the_roles_that_were_asked_for(tmp_path) -> None:
    path = write(tmp_path, "n,u,x,z,y\n0,5,1,a,2\n1,6,3,b,4\n2,7,5,c,6\n3,8,7,d,8\n")
    series = load_csv(path, time="n", columns=["y", "x"], forcing=["u"])
    assert series.names == ("y", "x")
    assert series.v[0].tolist() == [2, 1]
    assert series.forcing is not None and series.forcing[:, 0].tolist() == [5, 6, 7, 8]


def test_a_time_column_is_used_whatever_step_is_given_beside_it(tmp_path) -> None:
    # Two of eight rows dropped out: closed up, they would be a step of the field.
    rows = [f"{0.25 * i},{i}" for i in range(8) if i not in (2, 5)]
    path = write(tmp_path, "t,x\n" + "\n".join(rows))
    series = load_csv(path, dt=0.25)
    assert (series.dt, series.n_samples, series.names) == (0.25, 8, ("x",))
    assert series.missing.nonzero().flatten().tolist() == [2, 5]
    with pytest.raises(ValueError, match="got 0.3, but the times have a step of 0.25"):
        load_csv(path, dt=0.3)
    uneven = write(tmp_path, "t,x\n0,1\n1,2\n2.4,3\n3,4\n4,5\n")
    with pytest.raises(ValueError, match="irregular, 0.6 to 1.4 apart"):
        load_csv(uneven, dt=1.0)


def test_a_column_with_another_role_is_no_time(tmp_path) -> None:
    path = write(tmp_path, "t,x\n5,1\n5,2\n5,3\n")
    assert load_csv(path, dt=0.25, columns=["t", "x"]).v[:, 0].tolist() == [5, 5, 5]
    assert load_csv(path, dt=0.25, forcing=["t"]).names == ("x",)


def test_a_column_may_separate_series(tmp_path) -> None:
    rows = [f"{run},{t},{10 * t}" for t in range(4) for run in ("b", "a")]
    rows.append("b,4,40")
    series = load_csv(write(tmp_path, "run,t,x\n" + "\n".join(rows)), series="run")
    assert series.lengths == (5, 4)
    assert series.v[:5, 0].tolist() == [0, 10, 20, 30, 40]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbft,x\r\n0,1\r\n1,2\r\n2,3\r\n")
    assert load_csv(path).v[:, 0].tolist() == [1, 2, 3]


def test_numbers_survive_to_the_last_digit(tmp_path) -> None:
    v = torch.randn(20, dtype=torch.float64)
    rows = "\n".join(f"{i},{x!r}" for i, x in enumerate(v.tolist()))
    assert torch.equal(load_csv(write(tmp_path, "t,x\n" + rows)).v[:, 0], v)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "is empty"),
        ("0,1\n1,2\n2,3\n", {}, "must begin with a header.*'0,1'"),
        ("a,x\n0,1\n1,2\n2,3\n", {}, "must have a column of times.*`time=`"),
        ("t,x\n0,1\n1,2,3\n2,3\n", {}, "line 3: 3 cells, but the header has 2"),
        ("t,x\n0,1\n1,high\n2,3\n", {}, "line 3, column 'x': 'high' is not a number"),
        ("t,x\n0,1\n,2\n2,3\n", {}, "line 3: the time is missing"),
        ("t,x\n0,1\n1,2\n1,3\n", {}, "must be strictly increasing; got 1 at index 2"),
        ("t,x,x\n0,1,1\n", {}, "two columns 'x'"),
        ("t\n0\n1\n2\n", {}, "no column left for the state"),
        ("t,x\n0,1\n1,2\n", {}, "`v` must have at least 3 samples; got 2"),
        ("t,x\n0,1\n1,2\n2,3\n", {"columns": ["y"]}, "no column 'y'; .* are t, x"),
        ("t,x\n0,1\n1,2\n2,3\n", {"dt": 2, "time": "t"}, "`dt` must be the step of"),
        ("t,x\nyesterday,1\ntoday,2\nnow,3\n", {}, "numbers or ISO dates"),
    ],
)
def test_unusable_data_are_refused_with_the_reason(
    tmp_path, text: str, options: dict, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        load_csv(write(tmp_path, text), **options)
