"""Names from files and arguments as text that a terminal or a page only shows."""


def printable(text: object, *, keep: str = "") -> str:
    r"""`text` with control characters as escapes, ``\x1b`` for instance.

    A name may hold what a terminal obeys: colours, cursor moves, marks that turn the
    direction of the text, half of a surrogate pair.

    Args:
        text: what is shown.
        keep: characters that stay as they are.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in plain)
