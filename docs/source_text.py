"""Read texts from source code: docstrings, the strings below fields, signatures. Used by `build_reference.py`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from typing import NamedTuple


class Field(NamedTuple):
    name: str
    type: str
    default: str
    text: str


class Method(NamedTuple):
    call: str
    text: str


class Parts(NamedTuple):
    """A class: how to call it (if it has an `__init__` of its own), its fields, its public methods."""

    call: str
    fields: list[Field]
    methods: list[Method]


def document(name: str, value: object, module: str) -> list[str]:
    """The text about a public name, as lines of Markdown: its docstring, or the string below its assignment."""
    described = isinstance(value, type) or inspect.isroutine(value)
    if described:
        return markdown(inspect.getdoc(value) or "")
    written, text = assignment(name, module)
    return [f"`{name} = {written}`", "", *markdown(text)]


def markdown(text: str) -> list[str]:
    """A docstring as Markdown: tables of reST and drawings become text blocks, `<` outside code is escaped."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if "====" in paragraph or paragraph.startswith("    "):
            lines += ["```text", textwrap.dedent(paragraph).strip("\n"), "```", ""]
        else:
            lines += [_escaped(paragraph), ""]
    return lines[:-1]


def _escaped(text: str) -> str:
    pieces = re.split(r"(`+[^`]*`+)", text.replace("``", "`"))
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;").replace("*", "\\*") for p in pieces)


def signature(name: str, value: object) -> str:
    """A call with every parameter, one per line if it is long."""
    found = inspect.signature(value)  # pyright: ignore[reportArgumentType] - routines only
    parts = [_parameter(p) for p in found.parameters.values()]
    kinds = [p.kind for p in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    back = found.return_annotation
    arrow = "" if back is inspect.Signature.empty else f" -> {_annotation(back)}"
    head = "async " if inspect.iscoroutinefunction(value) else ""
    short = f"{head}{name}({', '.join(parts)}){arrow}"
    if len(short) <= 90:
        return short
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{head}{name}(\n{inner}){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(
        parameter.kind, ""
    )
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {parameter.default!r}" if ": " in text else f"={parameter.default!r}"
    return text


def _annotation(value: object) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    return text.strip("'\"")


def fields(kind: type) -> list[Field]:
    """The public fields of a class in the order of its source, without inherited ones."""
    body = _class_node(kind).body
    found: list[Field] = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        text = _string(after)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kept = not node.target.id.startswith("_") and not ast.unparse(node.annotation).startswith(
                "ClassVar"
            )
            default = ast.unparse(node.value) if node.value else ""
            if kept:
                found.append(Field(node.target.id, ast.unparse(node.annotation), default, _one_line(text)))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if not name.startswith("_"):
                found.append(Field(name, "", ast.unparse(node.value), _one_line(text)))
    return found


def parts_of(kind: type) -> Parts:
    call, methods = "", list[Method]()
    for node in _class_node(kind).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = {ast.unparse(d) for d in node.decorator_list}
        if node.name == "__init__":
            call = _call(kind.__name__, node)
        elif not node.name.startswith("_") and not any(d.endswith(".setter") for d in decorators):
            text = _one_line(ast.get_docstring(node) or "")
            shown = node.name if "property" in decorators else _short_call(node)
            methods.append(Method(shown, text))
    return Parts(call, fields(kind), methods)


def _call(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The call of a class, one parameter per line."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args][1:]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    lines = [_argument(a, d) for a, d in zip(plain, defaults[-len(plain) :] if plain else [], strict=True)]
    if arguments.kwonlyargs:
        lines.append("*")
        lines += [_argument(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    return text + (f" = {ast.unparse(default)}" if default else "")


def _short_call(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = ast.parse(ast.unparse(node.args).join(("def f(", "): ..."))).body[0]
    assert isinstance(arguments, ast.FunctionDef)
    for argument in (*arguments.args.args, *arguments.args.kwonlyargs):
        argument.annotation = None
    arguments.args.args = [a for a in arguments.args.args if a.arg not in ("self", "cls")]
    head = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{head}{node.name}({ast.unparse(arguments.args)})"


def _class_node(kind: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def _string(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return ""


def _one_line(text: str) -> str:
    return _escaped(" ".join(text.split()))


def assignment(name: str, module: str) -> tuple[str, str]:
    """The value and the string below `name = ...`; a name that the module imports is looked up where it is from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return ast.unparse(node.value), inspect.cleandoc(_string(after))
        if isinstance(node, ast.ImportFrom) and any(name in (a.name, a.asname) for a in node.names):
            return assignment(name, node.module or "")
    raise LookupError(f"{module} does not assign {name}")


def option_rows(function: object) -> tuple[list[str], dict[str, str]]:
    """The text of a function whose options are documented as `name: words`, and those options."""
    text, _, listed = (inspect.getdoc(function) or "").partition("Options:")
    found = re.findall(r"^(\w+): (.+(?:\n {2,}.+)*)$", listed, re.MULTILINE)
    return markdown(text.strip()), {name: _sentence(_one_line(words)) for name, words in found}


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
