"""Server-sent events as the HTML standard reads them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai.protocol.sse import KEEP_ALIVE, SseDecoder, SseEvent, comment, frame


def decode(*pieces: bytes) -> list[tuple[str, str]]:
    decoder = SseDecoder()
    return [(event.id, event.data) for piece in pieces for event in decoder.feed(piece)]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: x\n\n", [("", "x")]),
        (b"data:x\n\n", [("", "x")]),
        (b"data:  x\n\n", [("", " x")]),
        (b"data: x\r\n\r\n", [("", "x")]),
        (b"data: x\r\r", [("", "x")]),
        (b"data: x\r\n\n", [("", "x")]),
        (b"data: a\ndata: b\ndata:\n\n", [("", "a\nb\n")]),
        (b"data\n\n", [("", "")]),
        (b"data\ndata\n\n", [("", "\n")]),
        (b"data: x\n", []),
        (b"data: x", []),
        (b"\n\n\n", []),
        (b": comment\n\ndata: x\n:\n\n", [("", "x")]),
        (b"event: e\nretry: 10\nunknown: 1\nnothing\ndata: x\n\n", [("", "x")]),
        (b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", [("1", "a"), ("1", "b"), ("", "c")]),
        (b"id: 1\n\ndata: a\n\n", [("1", "a")]),
        (b"id: 1\ndata: a\nid: 2\n\n", [("2", "a")]),
        (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [("1", "a"), ("1", "b")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("", "x")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [("", "x")]),
        (b" data: x\n\n", []),
        (b"Data: x\n\n", []),
        ("data: é日😀\u2028\u0085\x0b\n\n".encode(), [("", "é日😀\u2028\u0085\x0b")]),
        (b"data: \xff\xe6\x97\n\n", [("", "\ufffd\ufffd")]),
        (b"data: a:b\n\n", [("", "a:b")]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_body_is_read_as_the_standard_says_in_any_cut(body: bytes, events: list[tuple[str, str]], size: int) -> None:
    assert decode(*(body[start : start + size] for start in range(0, len(body), size))) == events


def test_an_event_does_not_wait_for_the_line_feed_after_a_carriage_return() -> None:
    decoder = SseDecoder()

    assert decoder.feed(b"data: a\r\n\r") == [SseEvent("", "a")]
    assert decoder.feed(b"\ndata: b\n\n") == [SseEvent("", "b")]


def test_an_empty_piece_between_a_carriage_return_and_its_line_feed_changes_nothing() -> None:
    assert decode(b"data: a\r", b"", b"\ndata: b\r", b"\n", b"\n") == [("", "a\nb")]


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=5), st.text()), max_size=5
    )
)
def test_what_is_framed_is_read_back(events: list[tuple[str, str]]) -> None:
    body = b"".join(frame(data.encode(), id.encode()) for id, data in events)

    read = decode(body)
    assert read == [(id, "\n".join(data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))) for id, data in events]


def test_a_frame_carries_its_id_and_a_comment_is_no_event() -> None:
    assert frame(b"{}", b"v:1") == b"id: v:1\ndata: {}\n\n"
    assert frame(b"{}") == b"data: {}\n\n"
    assert frame(b"a\nb") == b"data: a\ndata: b\n\n"
    assert decode(comment(b"hello"), KEEP_ALIVE, comment()) == []
