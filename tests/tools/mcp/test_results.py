"""The answers of servers, as the model gets them."""

from __future__ import annotations

import base64

import mcp_types as types
import pytest

from remit.tools.mcp import results
from remit.tools.result import ToolResult
from remit.types.messages import FilePart, ImagePart

PNG = base64.b64encode(b"\x89PNG...").decode()


def read(*content: dict[str, object], **more: object) -> ToolResult:
    return results.to_result(types.CallToolResult.model_validate({"content": content, **more}))


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def test_texts_are_joined() -> None:
    """Several texts are joined in order."""
    assert read(text("one"), text("two")) == ToolResult("one\ntwo")


def test_an_error_is_a_failure() -> None:
    """With isError the result is not ok; the text is kept."""
    assert read(text("no such file"), isError=True) == ToolResult("no such file", ok=False)


def test_structured_content_is_shown_if_there_is_no_text() -> None:
    """If the server also sent text, structured content is kept in `details`."""
    assert read(structuredContent={"a": 1}) == ToolResult('{"a":1}', details={"a": 1})
    assert read(text("a is 1"), structuredContent={"a": 1}) == ToolResult("a is 1", details={"a": 1})


def test_structured_content_is_shown_beside_an_image() -> None:
    """An image does not count as text."""
    found = read({"type": "image", "data": PNG, "mimeType": "image/png"}, structuredContent={"a": 1})
    assert found.content == '(image, image/png, 7 bytes)\n{"a":1}'


def test_images_are_parts() -> None:
    """The model sees an image as a part, and the text names it at its place."""
    found = read(text("before"), {"type": "image", "data": PNG, "mimeType": "image/png; q=1"}, text("after"))
    assert found.parts == (ImagePart("image/png", b"\x89PNG..."),)
    assert found.content == "before\n(image, image/png, 7 bytes)\nafter"


def test_resources_are_text_images_or_documents() -> None:
    """Resources embedded in an answer are part of it."""
    about = {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hello"}
    picture = {"uri": "file:///a.png", "mimeType": "image/png", "blob": PNG}
    paper = {"uri": "file:///d/a.pdf", "mimeType": "application/pdf", "blob": PNG}
    found = read(*({"type": "resource", "resource": resource} for resource in (about, picture, paper)))
    assert found.content.startswith("(resource file:///a.txt, text/plain)\nhello\n")
    assert found.parts == (
        ImagePart("image/png", b"\x89PNG..."),
        FilePart("a.pdf", "application/pdf", b"\x89PNG..."),
    )


def test_links_are_shown() -> None:
    """A link is shown as its address and description."""
    link: dict[str, object] = {
        "type": "resource_link",
        "uri": "file:///b",
        "name": "b",
        "description": "the\nsecond",
    }
    assert read(link).content == "(link to b at file:///b: the second)"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
            "(audio, audio/wav, 9 bytes: unsupported type)",
        ),
        (
            {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},
            "image/svg+xml, 9 bytes: unsupported type",
        ),
        ({"type": "image", "data": "***", "mimeType": "image/png"}, "invalid base64"),
        (
            {"type": "resource", "resource": {"uri": "x:y", "blob": PNG}},
            "(resource x:y, unknown kind, 9 bytes",
        ),
    ],
)
def test_unsupported_content_is_described(block: dict[str, object], words: str) -> None:
    """Nothing is dropped without a note."""
    found = read(block)
    assert found.parts == ()
    assert words in found.content


def test_images_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that are too large, too many, or too large together are described instead."""
    image: dict[str, object] = {"type": "image", "data": PNG, "mimeType": "image/png"}
    assert len(read(*[image] * 25).parts) == results.MOST_PARTS
    monkeypatch.setattr(results, "PARTS_BYTES", 20)
    assert len(read(*[image] * 25).parts) == 2
    monkeypatch.setattr(results, "PART_BYTES", 5)
    found = read(image)
    assert found.parts == ()
    assert "too large to show" in found.content


def test_an_empty_answer_says_so() -> None:
    """An empty answer has a note for the model."""
    assert read().content == "(The tool returned no output.)"


def test_long_structured_content_is_not_stored_twice() -> None:
    """Beside a text, only its size is kept."""
    found = read(text("long"), structuredContent={"a": "x" * 200_000})
    assert found.details == "(structured content of 200,008 bytes)"
