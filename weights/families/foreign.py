"""A foreign config.json, read key by key with its type checked, in the styles of transformers 4 and 5."""

from __future__ import annotations

from typing import Any

from transformer.errors import InputError

MISSING = object()
MAX_LAYERS = 4096  # more than anyone has stacked; a count beyond it is a broken or hostile file


class Foreign:
    """Every getter names the file and the key in its complaint. A null counts as absent."""

    def __init__(self, values: dict[str, Any], source: str):
        self.values, self.source = values, source

    def defaulting(self, **values: Any) -> Foreign:
        """With values for keys that the file leaves out. A null stays a null: some files mean it."""
        return Foreign({**values, **self.values}, self.source)

    def renamed(self, **names: str) -> Foreign:
        """With keys that go by another name as well. Where both stand, they must agree."""
        values = dict(self.values)
        for old, new in names.items():
            value = values.pop(old, None)
            if value is None:
                continue
            if values.get(new) not in (None, value):
                raise InputError(f"{self.source}: {old} is {value!r:.60} but {new} is {values[new]!r:.60}")
            values[new] = value
        return Foreign(values, self.source)

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
        if value is not None and abs(value) >= 2**63:
            raise InputError(f"{self.source}: {key} has {len(str(value))} digits, more than any size has")
        return value

    def layers(self, key: str) -> int:
        """A number of layers, bounded because each costs memory before any tensor is looked at."""
        value = self.integer(key)
        if not 0 < value <= MAX_LAYERS:
            raise InputError(f"{self.source}: {key} must be 1 to {MAX_LAYERS}, got {value}")
        return value

    def number(self, key: str, default: Any = MISSING) -> float:
        value = self._get(key, default, (int, float), "a number")
        return float(value) if self.has(key) else value

    def flag(self, key: str, default: Any = MISSING) -> bool:
        value: bool = self._get(key, default, bool, "true or false")
        return value

    def text(self, key: str, default: Any = MISSING) -> str:
        value: str = self._get(key, default, str, "a string")
        return value

    def list(self, key: str, default: Any = MISSING) -> list[Any]:
        value: list[Any] = self._get(key, default, list, "a list")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        values = self.list(key)
        if not all(type(value) in (int, float) for value in values):
            raise InputError(f"{self.source}: {key} must be a list of numbers, got {values!r:.60}")
        return tuple(float(value) for value in values)

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
            only = "" if unless is None else f", only {unless!r}"
            raise InputError(f"{self.source}: {key} = {value!r:.60} is not supported{only}")
