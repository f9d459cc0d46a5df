"""A value that nobody sees by accident."""

from __future__ import annotations


class Secret:
    """A password. Only `reveal()` gives it out; repr, str and format show three stars, and it cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other.reveal()

    def __hash__(self) -> int:
        return hash(("secret", self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not written down; read the settings again in the other process")
