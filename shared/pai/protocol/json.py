"""One JSON codec for everything that crosses a process: bytes out, plain values in."""

from typing import Any

import orjson


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON with the keys in the order given.

    The value must be clean (`pai.protocol.text.clean`): orjson writes NaN and infinities as null, and refuses lone
    surrogates.
    Raises TypeError for what JSON cannot hold.
    """
    return orjson.dumps(value)


def dumps_text(value: Any) -> str:
    """As `dumps`, decoded: what SQL text columns take."""
    return orjson.dumps(value).decode()


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: `true` is not `1`, and the order of keys does not count."""
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def loads(data: bytes | str) -> Any:
    """Strict JSON. Raises ValueError (orjson.JSONDecodeError)."""
    return orjson.loads(data)
