"""How much work a JSON Schema can make: ten lines of references may describe a billion checks.

Without references, a validator does at most (places in the value) x (subschemas) checks. A reference adds the
subschemas of its target wherever it stands, so chains of references multiply; and a reference that leads back to itself
multiplies once more with every level of the value. Both are counted here, generously, before anything is validated.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_BELOW_LISTS = ("prefixItems", "items")
_BELOW = (
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
)
_BELOW_MAPS = ("properties", "patternProperties")
_REFUSED = ("$dynamicRef", "$recursiveRef")
_CEILING = 10**12


class ReferenceCost:
    """`subschemas`: how many subschemas one place of a value may be checked against, with references followed once.

    `branching`: by what factor that may grow with every level of the value; 0 without recursion.
    Raises ValueError for references that cannot be followed, or that never leave their place.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._nodes: dict[str, _Node] = {}
        self._read("#")
        _refuse_endless(self._nodes)
        self.subschemas, self.branching = _weigh(self._nodes)

    def work(self, *, places: int, depth: int) -> int:
        """An upper bound of the checks for a value of that many places (itself and all inside) and levels."""
        if self.subschemas * places >= _CEILING or self.branching > _CEILING:
            return _CEILING
        growth = 1
        for _ in range(depth if self.branching > 1 else 0):
            growth *= self.branching
            if growth >= _CEILING:
                return _CEILING
        return min(_CEILING, self.subschemas * places * growth)

    def _read(self, first: str) -> None:
        waiting = [first]
        while waiting:
            pointer = waiting.pop()
            if pointer in self._nodes:
                continue
            node = self._nodes[pointer] = _Node(_target(self._document, pointer), root=pointer == "#")
            waiting += [target for target, _ in node.references]


class _Node:
    """What a reference may point to: its own subschemas, and the references in them (target, whether in place)."""

    __slots__ = ("references", "size")

    def __init__(self, schema: Any, *, root: bool) -> None:
        self.size = 0
        self.references: list[tuple[str, bool]] = []
        for subschema, in_place in _subschemas(schema, in_place=True):
            self.size += 1
            if not isinstance(subschema, Mapping):
                continue
            if isinstance(subschema.get("$id"), str) and not (root and subschema is schema):
                raise ValueError("$id is only supported at the root")
            for keyword in _REFUSED:
                if keyword in subschema:
                    raise ValueError(f"{keyword} is not supported; use $ref")
            if isinstance(reference := subschema.get("$ref"), str):
                self.references.append((reference, in_place))


def _subschemas(schema: Any, *, in_place: bool) -> Iterator[tuple[Any, bool]]:
    """All that the validator may apply, without following references; with whether it applies to the same place."""
    yield schema, in_place
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        if keyword in _IN_PLACE_LISTS and isinstance(value, list):
            for item in value:
                yield from _subschemas(item, in_place=in_place)
        elif keyword in _IN_PLACE:
            yield from _subschemas(value, in_place=in_place)
        elif keyword in _IN_PLACE_MAPS and isinstance(value, Mapping):
            for item in value.values():
                yield from _subschemas(item, in_place=in_place)
        elif keyword in _BELOW_LISTS and isinstance(value, list):
            for item in value:
                yield from _subschemas(item, in_place=False)
        elif keyword in _BELOW_MAPS and isinstance(value, Mapping):
            for item in value.values():
                yield from _subschemas(item, in_place=False)
        elif keyword in _BELOW:
            yield from _subschemas(value, in_place=False)


def _target(document: Mapping[str, Any], pointer: str) -> Any:
    if pointer == "#":
        return document
    if not pointer.startswith("#/"):
        raise ValueError(f"a $ref is a pointer inside (#/...), not {pointer[:100]!r}")
    found: Any = document
    for token in unquote(pointer[2:]).split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"$ref {pointer[:100]!r} points to nothing") from None
    return found


def _refuse_endless(nodes: Mapping[str, _Node]) -> None:
    """References in place must end: what remains after taking away all that do is a circle."""
    _, circle = _peeled({name: {to for to, in_place in node.references if in_place} for name, node in nodes.items()})
    if circle:
        raise ValueError("a $ref leads back to itself without going deeper into the value")


def _weigh(nodes: Mapping[str, _Node]) -> tuple[int, int]:
    """`(subschemas, branching)`. All circles together count as one whose every round costs as much as all its nodes."""
    after = {name: {to for to, _ in node.references} for name, node in nodes.items()}
    below, others = _peeled(after)
    before: dict[str, set[str]] = {name: set() for name in others}
    for name in others:
        for to in after[name] & others:
            before[to].add(name)
    above, circle = _peeled(before)

    cost: dict[str, int] = {}
    for name in below:
        cost[name] = _cost(nodes[name], cost)
    whole = min(_CEILING, sum(_cost(nodes[name], cost | dict.fromkeys(circle, 0)) for name in circle))
    cost |= dict.fromkeys(circle, whole)
    for name in reversed(above):
        cost[name] = _cost(nodes[name], cost)
    branching = max((sum(to in circle for to, _ in nodes[name].references) for name in circle), default=0)
    return cost["#"], branching


def _cost(node: _Node, cost: Mapping[str, int]) -> int:
    return min(_CEILING, node.size + sum(cost[to] for to, _ in node.references))


def _peeled(after: Mapping[str, set[str]]) -> tuple[list[str], set[str]]:
    """The names that lead to an end, each after all that it leads to; and the rest, which leads into a circle."""
    before: dict[str, list[str]] = {name: [] for name in after}
    for name, targets in after.items():
        for to in targets:
            before[to].append(name)
    open_targets = {name: len(targets) for name, targets in after.items()}
    ends = [name for name, count in open_targets.items() if count == 0]
    order: list[str] = []
    while ends:
        order.append(name := ends.pop())
        for earlier in before[name]:
            open_targets[earlier] -= 1
            if open_targets[earlier] == 0:
                ends.append(earlier)
    return order, set(after) - set(order)
