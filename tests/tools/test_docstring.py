"""Docstrings: descriptions and notes about parameters, in four styles."""

from __future__ import annotations

import inspect
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import tool
from remit.tools.docstring import read_docstring

GOOGLE = """Send a message.

It may take a while.

Args:
    to (str): who gets it,
        by name.
    body: what to say: all of it
    *rest: ignored

Returns:
    to: nothing of the kind

Afterwards it is gone.
"""

NUMPY = """Send a message.

It may take a while.

Parameters
----------
to, cc : str
    who gets it,
    by name.
body
    what to say: all of it

Returns
-------
body
    not a parameter

Notes
-----
Afterwards it is gone.
"""

SPHINX = """Send a message.

It may take a while.

:param str to: who gets it,
    by name.
:type to: str
:param body: what to say: all of it
:returns: nothing

Afterwards it is gone.
"""

EPYDOC = """Send a message.

It may take a while.

@param to: who gets it,
    by name.
@type to: C{str}
@keyword body: what to say: all of it
@return: nothing
@raise ValueError: never

Afterwards it is gone.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX, EPYDOC])
def test_docstrings_of_four_styles_are_read(doc: str) -> None:
    """Google, NumPy, Sphinx and Epydoc docstrings give the description and a note for each parameter."""
    description, notes = read_docstring(doc)
    assert description.startswith("Send a message.\n\nIt may take a while.")
    assert "who gets it" not in description
    assert "nothing" not in description
    assert notes["to"] == "who gets it, by name."
    assert notes["body"] == "what to say: all of it"


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX, EPYDOC])
def test_text_after_a_section_belongs_to_the_description(doc: str) -> None:
    """Text that follows a section is neither lost nor part of the last note."""
    assert read_docstring(doc)[0].endswith("Afterwards it is gone.")


def test_only_sections_about_parameters_give_notes() -> None:
    """A section about results gives no notes, and an entry may name several parameters."""
    assert set(read_docstring(GOOGLE)[1]) == {"to", "body", "rest"}
    assert read_docstring(NUMPY)[1]["cc"] == "who gets it, by name."
    assert set(read_docstring(NUMPY)[1]) == {"to", "cc", "body"}


@pytest.mark.parametrize(
    ("doc", "notes"),
    [
        ("Args:\n    a, b: both\n    `c`: third\n    **d: rest", {"a": "both", "b": "both", "c": "third", "d": "rest"}),
        ("Args:\n    a (list of (int, int), optional): pairs", {"a": "pairs"}),
        (":func:`x` does it.\n\nArgs:\n    a: first", {"a": "first"}),
        (":param dict or str a: first\n:returns nothing", {"a": "first"}),
        ("Parameters\n==========\n\na : int\n    first\n\nb : int\n    second", {"a": "first", "b": "second"}),
        ("Parameters\n----------\na\n    first\n\nSee Also\n--------\nother", {"a": "first"}),
        (":param a:\n    first", {"a": "first"}),
        ("Args:\n    a: first", {"a": "first"}),
    ],
)  # fmt: skip
def test_variants_that_people_write(doc: str, notes: dict[str, str]) -> None:
    """Shared entries, typed entries, marks around names and both kinds of underline are read."""
    assert read_docstring(doc)[1] == notes


@pytest.mark.parametrize(
    "doc",
    [
        "Do it.\n\nArgs:\n    first the path, then the mode",
        "Do it.\n\nParameters\n----------\n    what, and why",
        "Do it.\n\n:param : the path",
        "Do it.\n\nSee Also\n--------\nundo",
    ],
)
def test_a_section_that_cannot_be_read_stays_in_the_description(doc: str) -> None:
    """If no parameter can be found in a section, the model reads the section as it was written."""
    description, notes = read_docstring(doc)
    assert notes == {}
    assert description.split() == [word for word in doc.split() if word != "----------"]


def test_notes_reach_the_schema() -> None:
    """A tool's schema has the note of each parameter, and its description has the rest."""

    for doc in (GOOGLE, NUMPY, SPHINX, EPYDOC):

        def fn(to: str, body: str) -> None: ...

        fn.__doc__ = doc
        spec = tool(fn, name="send").spec
        properties = spec.parameters["properties"]
        assert isinstance(properties, dict)
        assert properties["to"] == {"type": "string", "description": "who gets it, by name."}
        assert properties["body"] == {"type": "string", "description": "what to say: all of it"}
        assert spec.description.startswith("Send a message.")


def test_notes_after_an_empty_first_line_are_read() -> None:
    """A docstring that begins with its parameters loses none of its indentation."""

    def fn(a: str) -> None:
        """
        Args:
            a: first
        """

    assert inspect.getdoc(fn) == "Args:\n    a: first"
    properties = tool(fn).spec.parameters["properties"]
    assert properties == {"a": {"type": "string", "description": "first"}}


@given(st.text())
def test_no_docstring_breaks_the_reader(doc: str) -> None:
    """Any text can be read as a docstring."""
    description, _ = read_docstring(doc)
    assert isinstance(description, str)


PIECES = [
    "Args:",
    "Parameters",
    "----------",
    "    ",
    "a",
    "a: b",
    ":param a:",
    "@param",
    ":",
    "\n",
    "\n\n",
    "(",
    ")",
    "`",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_broken_section_breaks_the_reader(doc: str) -> None:
    """Headings, fields and names in any order are read without an error."""
    read_docstring(doc)


@pytest.mark.real_time
@pytest.mark.parametrize("piece", ["a, ", "(", "*", "a (", "`a`", " ", "a:"])
def test_a_long_line_is_read_at_once(piece: str) -> None:
    """A long line is read in linear time."""
    begun = time.process_time()
    for start in ("Args:\n    ", "Parameters\n---\n", ":param "):
        read_docstring(start + piece * 4000)
    assert time.process_time() - begun < 2
