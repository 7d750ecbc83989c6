"""A foreign config.json, read key by key with its type checked, in the styles of transformers 4 and 5."""

from __future__ import annotations

from typing import Any

from transformer.errors import InputError

MISSING = object()


class Foreign:
    """Every getter names the file and the key in its complaint. A null counts as absent."""

    def __init__(self, values: dict[str, Any], source: str):
        self.values, self.source = values, source

    def _get(self, key: str, default: Any, kinds: type | tuple[type, ...], wanted: str) -> Any:
        value = self.values.get(key)
        if value is None:
            if default is MISSING:
                raise InputError(f"{self.source}: {key} is missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise InputError(f"{self.source}: {key} must be {wanted}, got {value!r:.60}")
        return value

    def integer(self, key: str, default: Any = MISSING) -> int:
        value: int = self._get(key, default, int, "a whole number")
        return value

    def number(self, key: str, default: Any = MISSING) -> float:
        value: float = self._get(key, default, (int, float), "a number")
        return value

    def flag(self, key: str, default: Any = MISSING) -> bool:
        value: bool = self._get(key, default, bool, "true or false")
        return value

    def text(self, key: str, default: Any = MISSING) -> str:
        value: str = self._get(key, default, str, "a string")
        return value

    def list(self, key: str, default: Any = MISSING) -> list[Any]:
        value: list[Any] = self._get(key, default, list, "a list")
        return value

    def table(self, key: str, default: Any = MISSING) -> Foreign:
        value = self._get(key, default, dict, "an object")
        return Foreign(value, f"{self.source}: {key}")

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def choice(self, key: str, choices: dict[str, Any], default: Any = MISSING) -> Any:
        """The value's entry in `choices`."""
        value = self.text(key, default)
        if value not in choices:
            raise InputError(f"{self.source}: {key} {value!r} is not supported, only {', '.join(choices)}")
        return choices[value]

    def refuse(self, key: str, unless: Any) -> None:
        """A switch that we do not follow may only stand where it changes nothing."""
        value = self.values.get(key)
        if value is not None and value != unless:
            raise InputError(f"{self.source}: {key} = {value!r:.60} is not supported, only {unless!r}")
