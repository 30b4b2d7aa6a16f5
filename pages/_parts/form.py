"""A form made from a pydantic schema: one widget a field, of the kind that its type asks for, its limits and help from the schema."""

import json
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
import streamlit as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from engine.errors import SpecError

WIDE = (dict, list)


def form(model: type[BaseModel], names: Iterable[str], *, labels: Mapping[str, str], prefix: str = "form") -> dict[str, Any]:
    """Widgets for these fields of the schema, two a row; returns what was set, only where it is not the default."""
    chosen: dict[str, Any] = {}
    columns = st.columns(2)
    for index, name in enumerate(names):
        info = model.model_fields[name]
        with columns[index % 2]:
            value = _widget(name, info, labels.get(name, name.replace("_", " ").capitalize()), f"{prefix}_{name}")
        if value != _default(info):
            chosen[name] = value
    return chosen


def _default(info: FieldInfo) -> Any:
    return None if info.default is PydanticUndefined and info.default_factory is None else info.get_default(call_default_factory=True)


def kind_of(annotation: Any) -> tuple[Any, bool]:
    """(type, may be None) of a field's annotation."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return _bare(inner[0]), len(inner) < len(get_args(annotation))
    return _bare(annotation), False


def _bare(annotation: Any) -> Any:
    """The type without its rules."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def limits(info: FieldInfo) -> dict[str, Any]:
    """Smallest and largest value of a number, as its widget wants them."""
    found: dict[str, Any] = {}
    for rule in info.metadata:
        if isinstance(rule, annotated_types.Ge):
            found["min_value"] = rule.ge
        elif isinstance(rule, annotated_types.Le):
            found["max_value"] = rule.le
        elif isinstance(rule, annotated_types.Lt) and rule.lt <= 2**53:
            found["max_value"] = rule.lt - 1
    return found


def _widget(name: str, info: FieldInfo, label: str, key: str) -> Any:
    kind, optional = kind_of(info.annotation)
    default, kept = _default(info), {"key": key, "persist_state": "session", "help": info.description}
    if kind is bool:
        return st.toggle(label, value=bool(default), **kept)
    if kind in (int, float):
        empty = {"max_cases": "all"}.get(name, "as in the files") if optional else None
        number = st.number_input(label, value=default, placeholder=empty, step=kind(1), **limits(info), **kept)
        return kind(number) if number is not None else None
    if get_origin(kind) is Literal:
        return st.selectbox(
            label, [None, *get_args(kind)] if optional else get_args(kind), format_func=lambda v: v or "as in the files", **kept
        )
    if get_origin(kind) is tuple:
        text = st.text_input(label, value=", ".join(map(str, default or ())), placeholder="comma separated", **kept)
        return tuple(read(part.strip(), get_args(kind)[0], name) for part in text.split(",") if part.strip())
    if get_origin(kind) in WIDE or kind in WIDE:
        if info.examples:  # pairs, which the schema reads
            return st.text_input(label, value="", placeholder=str(info.examples[0]), **kept).strip() or default
        text = st.text_area(label, value=json.dumps(default) if default else "", placeholder="{}", height=70, **kept)
        return read_json(text, name) if text.strip() else default
    return st.text_input(label, value=str(default or ""), **kept)


def read(text: str, kind: Any, name: str) -> Any:
    """One item of a list, as the schema's type; the schema itself checks its range later."""
    base = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    if base not in (int, float):
        return text
    try:
        return base(float(text)) if base is int and float(text).is_integer() else base(text)
    except ValueError:
        raise SpecError(
            f"field {name!r}",
            found=repr(text[:40]),
            expected=f"numbers of kind {base.__name__}, comma separated",
            remedy="Correct this field.",
        ) from None


def read_json(text: str, name: str) -> Any:
    """A field's JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        raise SpecError(
            f"field {name!r}",
            found=f"text that is not JSON: {fault.msg}",
            expected='JSON, as in {"alps": [44, 48, 5, 16]}',
            remedy="Correct this field.",
        ) from None
