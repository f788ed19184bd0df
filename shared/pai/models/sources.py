"""Sources and citations as the AI SDK has them; each source is told once per message."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    Citation,
    CitationSource,
    ContentCitationAnchor,
    DocumentCitationSource,
    WebCitationSource,
)

from pai.models.model import Chunk
from pai.protocol.text import clean_text

_SEARCHES = frozenset({"web_search", "web_fetch", "file_search"})
_DEEPEST = 4


class Sources:
    """The sources of one message, numbered as they come."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def found(self, tool_name: str, content: Any) -> list[Chunk]:
        """The new web pages in the result of a provider's own search."""
        if tool_name not in _SEARCHES:
            return []
        return [
            chunk
            for url, title in _pages(content, _DEEPEST)
            if (chunk := self._chunk(WebCitationSource(url=url, title=title))) is not None
        ]

    def cited(self, citations: Sequence[Citation]) -> list[Chunk]:
        """The new sources that a text refers to."""
        return [
            chunk for citation in citations for source in citation.sources if (chunk := self._chunk(source)) is not None
        ]

    def citations(self, citations: Sequence[Citation], text: str) -> list[dict[str, Any]]:
        """The `citations` of `text-end`; positions count UTF-16 units, as JavaScript does."""
        return [
            _citation(citation, source, self._ids[_key(source)], text)
            for citation in citations
            for source in citation.sources
        ]

    def _chunk(self, source: CitationSource) -> Chunk | None:
        key = _key(source)
        if key in self._ids:
            return None
        self._ids[key] = f"source-{len(self._ids) + 1}"
        described = _described(source)
        kind = "source-url" if isinstance(source, WebCitationSource) else "source-document"
        return {"type": kind, "sourceId": self._ids[key], **described}


def read_citations(citations: Any, text: str) -> list[Citation] | None:
    """Stored `citations` as pydantic-ai has them; None when there are none that can be read."""
    found = [
        citation
        for stored in (citations if isinstance(citations, list) else [])
        if (citation := _read(stored, text)) is not None
    ]
    return found or None


def _key(source: CitationSource) -> str:
    if isinstance(source, WebCitationSource):
        return source.url
    return f"document:{source.document_id or source.title or (source.excerpts or [''])[0]}"


def _described(source: CitationSource) -> dict[str, Any]:
    if isinstance(source, WebCitationSource):
        title = {"title": clean_text(source.title)} if source.title else {}
        return {"url": clean_text(source.url), **title}
    title_or_id = source.title or source.document_id or "Document"
    return {"mediaType": "text/plain", "title": clean_text(title_or_id)}


def _citation(citation: Citation, source: CitationSource, id: str, text: str) -> dict[str, Any]:
    kind = "url" if isinstance(source, WebCitationSource) else "document"
    stored: dict[str, Any] = {"source": {"type": "source", "sourceType": kind, "id": id, **_described(source)}}
    if citation.anchor is not None:
        stored["startIndex"] = _units(text, citation.anchor.start)
        stored["endIndex"] = _units(text, citation.anchor.end)
    if source.excerpts:
        stored["citedText"] = clean_text("\n".join(source.excerpts))
    return stored


def _units(text: str, position: int) -> int:
    before = text[:position]
    return position if before.isascii() else len(before.encode("utf-16-le", "surrogatepass")) // 2


def _position(text: str, units: Any) -> int | None:
    if not isinstance(units, int) or isinstance(units, bool):
        return None
    if text.isascii():
        return units
    return len(text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass"))


def _read(stored: Any, text: str) -> Citation | None:
    source = stored.get("source") if isinstance(stored, Mapping) else None
    if not isinstance(source, Mapping):
        return None
    cited = stored.get("citedText")
    excerpts = [cited] if isinstance(cited, str) else []
    title = source.get("title") if isinstance(source.get("title"), str) else None
    url = source.get("url")
    try:
        found: CitationSource = (
            WebCitationSource(url=url, title=title, excerpts=excerpts)
            if isinstance(url, str)
            else DocumentCitationSource(title=title, excerpts=excerpts)
        )
        start, end = _position(text, stored.get("startIndex")), _position(text, stored.get("endIndex"))
        anchor = None if start is None or end is None else ContentCitationAnchor(start=start, end=end)
        return Citation(sources=[found], anchor=anchor)
    except ValueError:
        return None


def _pages(content: Any, depth: int) -> Iterator[tuple[str, str | None]]:
    if depth == 0:
        return
    if isinstance(content, Mapping):
        url = content.get("url") or content.get("uri")
        title = content.get("title")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            yield url, title if isinstance(title, str) else None
        for value in content.values():
            yield from _pages(value, depth - 1)
    elif isinstance(content, list):
        for value in content:
            yield from _pages(value, depth - 1)
