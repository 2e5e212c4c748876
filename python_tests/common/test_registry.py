"""Entries are found by name, and a name that does not exist is answered with one."""

import pytest

from wpnode_ext.common.registry import Registry, suggestion


@pytest.fixture
def shapes() -> Registry[int]:
    found: Registry[int] = Registry("shape.kind", "shapes")
    found.add("triangle", 3)
    found.add("square", 4)
    return found


def test_entries_are_found_in_the_order_they_were_added(shapes: Registry[int]) -> None:
    assert [shapes.find(name) for name in shapes] == [3, 4]
    assert shapes.names == ("triangle", "square") and len(shapes) == 2
    assert dict(shapes.items()) == {"triangle": 3, "square": 4}
    assert "square" in shapes and "circle" not in shapes and 4 not in shapes


def test_a_decorator_adds_its_class_unchanged() -> None:
    kinds: Registry[type] = Registry("kind", "kinds")

    @kinds.register("own")
    class Own:
        pass

    assert kinds.find("own") is Own and Own.__name__ == "Own"


def test_an_unknown_name_names_the_setting_and_the_nearest_entry(
    shapes: Registry[int],
) -> None:
    with pytest.raises(ValueError, match=r"`shape\.kind` must be one of triangle, squ"):
        shapes.find("hexagon")
    with pytest.raises(ValueError, match="Did you mean 'square'"):
        shapes.find("sqare")
    with pytest.raises(ValueError, match="^`form` must be one of"):
        shapes.find("sqare", setting="form")
    with pytest.raises(ValueError, match="must be one of"):
        shapes.find(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be one of"):
        shapes.find(["square"])  # type: ignore[arg-type]


def test_a_name_is_taken_once_unless_it_is_replaced(shapes: Registry[int]) -> None:
    with pytest.raises(ValueError, match="`name` must not be taken"):
        shapes.add("square", 5)
    assert shapes.find("square") == 4
    shapes.add("square", 5, replace=True)
    assert shapes.find("square") == 5 and shapes.names == ("triangle", "square")


def test_removed_entries_are_gone(shapes: Registry[int]) -> None:
    shapes.remove("square")
    assert shapes.names == ("triangle",)
    with pytest.raises(ValueError, match="must be one of"):
        shapes.remove("square")


@pytest.mark.parametrize("name", ["", " square", "a\nb"])
def test_names_are_plain_text(shapes: Registry[int], name: str) -> None:
    with pytest.raises(ValueError, match="`name` must be printable"):
        shapes.add(name, 1)


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggestion("lorenz", ["lorenz63", "rossler"]) == " Did you mean 'lorenz63'?"
    assert suggestion("a", ["features"], quote="`") == ""
    assert suggestion(3, ["features"]) == ""
