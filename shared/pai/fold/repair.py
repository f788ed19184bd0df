"""One scan over a growing JSON text that remembers where it could be cut, and what would then have to be closed."""

import re
from enum import IntEnum


class _At(IntEnum):
    ROOT = 0
    FINISH = 1
    STRING = 2
    ESCAPE = 3
    UNICODE = 4
    NUMBER = 5
    LITERAL = 6
    OBJECT_START = 7
    KEY = 8
    AFTER_KEY = 9
    BEFORE_VALUE = 10
    AFTER_VALUE = 11
    OBJECT_COMMA = 12
    ARRAY_START = 13
    AFTER_ITEM = 14
    ARRAY_COMMA = 15


_LITERALS = ("true", "false", "null")
_IN_OBJECT = frozenset({_At.OBJECT_START, _At.KEY, _At.AFTER_KEY, _At.BEFORE_VALUE, _At.AFTER_VALUE, _At.OBJECT_COMMA})
_IN_ARRAY = frozenset({_At.ARRAY_START, _At.AFTER_ITEM, _At.ARRAY_COMMA})
_HEX = frozenset("0123456789abcdefABCDEF")
_DIGITS = frozenset("0123456789")
_STRING_STOP = re.compile(r'["\\]')
# What a value may begin in -> where its container goes on after it.
_AFTER = {
    _At.ROOT: _At.FINISH,
    _At.BEFORE_VALUE: _At.AFTER_VALUE,
    _At.ARRAY_START: _At.AFTER_ITEM,
    _At.ARRAY_COMMA: _At.AFTER_ITEM,
}


class Repair:
    """The scanner. It is lenient where the AI SDK's is: what does not fit is passed over."""

    __slots__ = ("_digits", "_keep", "_literal", "_stack", "text")

    def __init__(self, text: str = "") -> None:
        self.text = ""
        self._stack = [_At.ROOT]
        self._keep = 0
        self._literal = 0
        self._digits = 0
        self.feed(text)

    def repaired(self) -> str:
        """The text up to the last place where it can be cut, with all that is open closed."""
        pieces = [self.text[: self._keep]]
        for at in reversed(self._stack):
            if at is _At.STRING:
                pieces.append('"')
            elif at in _IN_OBJECT:
                pieces.append("}")
            elif at in _IN_ARRAY:
                pieces.append("]")
            elif at is _At.LITERAL:
                begun = self.text[self._literal :]
                pieces.extend(word[len(begun) :] for word in _LITERALS if word.startswith(begun))
        return "".join(pieces)

    def feed(self, text: str) -> None:
        position = len(self.text)
        self.text = whole = self.text + text
        stack = self._stack
        end = len(whole)
        while position < end:
            at = stack[-1]
            if at is _At.STRING:
                # Nearly all of a long input is inside strings: run to the next character that means something.
                found = _STRING_STOP.search(whole, position)
                if found is None:
                    self._keep = end
                    return
                position = found.start()
                if whole[position] == '"':
                    stack.pop()
                    self._keep = position + 1
                else:
                    self._keep = position
                    stack.append(_At.ESCAPE)
            elif at is _At.KEY:
                position = whole.find('"', position)
                if position < 0:
                    return
                stack[-1] = _At.AFTER_KEY
            elif at is _At.FINISH:
                return
            else:
                self._step(at, whole[position], position)
            position += 1

    def _step(self, at: _At, char: str, position: int) -> None:
        stack = self._stack
        match at:
            case _At.ROOT | _At.BEFORE_VALUE | _At.ARRAY_COMMA:
                self._begin(at, char, position)
            case _At.ARRAY_START if char == "]":
                self._close(position)
            case _At.ARRAY_START:
                self._begin(at, char, position)
            case _At.OBJECT_START if char == "}":
                self._close(position)
            case _At.OBJECT_START | _At.OBJECT_COMMA if char == '"':
                stack[-1] = _At.KEY
            case _At.AFTER_KEY if char == ":":
                stack[-1] = _At.BEFORE_VALUE
            case _At.AFTER_VALUE:
                self._after_value(char, position)
            case _At.AFTER_ITEM:
                if not self._after_item(char, position):
                    self._keep = position + 1
            case _At.ESCAPE:
                stack.pop()
                if char == "u":
                    self._digits = 0
                    stack.append(_At.UNICODE)
                else:
                    self._keep = position + 1
            case _At.UNICODE if char in _HEX:
                self._digits += 1
                if self._digits == 4:
                    stack.pop()
                    self._keep = position + 1
            case _At.NUMBER:
                self._number(char, position)
            case _At.LITERAL:
                self._in_literal(char, position)

    def _begin(self, at: _At, char: str, position: int) -> None:
        stack = self._stack
        if char == '"':
            inside = _At.STRING
        elif char == "{":
            inside = _At.OBJECT_START
        elif char == "[":
            inside = _At.ARRAY_START
        elif char in "ftn":
            inside = _At.LITERAL
            self._literal = position
        elif char in _DIGITS or char == "-":
            inside = _At.NUMBER
        else:
            return
        if char != "-":
            self._keep = position + 1
        stack[-1] = _AFTER[at]
        stack.append(inside)

    def _close(self, position: int) -> None:
        self._keep = position + 1
        self._stack.pop()

    def _after_value(self, char: str, position: int) -> None:
        if char == ",":
            self._stack[-1] = _At.OBJECT_COMMA
        elif char == "}":
            self._close(position)

    def _after_item(self, char: str, position: int) -> bool:
        if char == ",":
            self._stack[-1] = _At.ARRAY_COMMA
        elif char == "]":
            self._close(position)
        else:
            return False
        return True

    def _number(self, char: str, position: int) -> None:
        stack = self._stack
        if char in _DIGITS:
            self._keep = position + 1
        elif char not in "eE-.":
            stack.pop()
            if char in ",]" and stack[-1] is _At.AFTER_ITEM:
                self._after_item(char, position)
            elif char in ",}" and stack[-1] is _At.AFTER_VALUE:
                self._after_value(char, position)

    def _in_literal(self, char: str, position: int) -> None:
        stack = self._stack
        begun = self.text[self._literal : position + 1]
        if any(word.startswith(begun) for word in _LITERALS):
            self._keep = position + 1
            return
        stack.pop()
        if stack[-1] is _At.AFTER_VALUE:
            self._after_value(char, position)
        elif stack[-1] is _At.AFTER_ITEM:
            self._after_item(char, position)
