"""Entries of a classification run: a method's key, with ":variant" parts where one method stands there several times.

director                      the method as it is
director:no_noise             a control: the same method with parameters of its own, learned anew (`CONTROLS`)
director:s1                   the same state with one member; any number: s1, s5
stochastic_attention:16       this ν, instead of the one that is chosen
kep_svgp:2                    the last so many attentions replaced
"""

import re
from dataclasses import dataclass, field
from typing import Any

CONTROLS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "director": {
        "no_noise": ("no noise", {"noise": "none"}),
        "constant_noise": ("constant noise", {"noise": "constant"}),
        "no_matching": ("no matching", {"matching": False}),
    },
}
"""Variants with parameters of their own, by method: words for people, parameters."""
TEACHER = "deterministic"
"""The entry of the frozen model."""
NUMBERED = {"kep_svgp": ("last", "last {}")}
"""Methods of which a bare number sets a parameter: its name, words for people."""
WITH_NU = ("stochastic_attention",)
"""Methods of which a bare number is ν."""


@dataclass(frozen=True)
class Entry:
    """A parsed entry. `asked` are the parameters that its variant stands for; `members` and `nu` None: the spec's."""

    name: str
    method: str
    asked: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    state_name: str = ""
    """The entry whose learned state this one uses: its own name less what changes no learning."""
    members: int | None = None
    nu: int | None = None

    @property
    def control(self) -> bool:
        """A variant that differs from its method in what it learns."""
        return self.method in CONTROLS and bool(self.asked)


def parse_entry(name: str) -> Entry:
    """Take an entry's name apart. Raises ValueError that says what is wrong with it."""
    method, *parts = name.split(":")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", method):
        raise ValueError(f"entry {name!r}: an entry begins with a method's key, like director or kep_svgp")
    asked: dict[str, Any] = {}
    words: list[str] = []
    state, members, nu = [method], None, None
    known = CONTROLS.get(method, {})
    for part in parts:
        number = part.lstrip("s").isdigit()
        if (part in known and set(known[part][1]) & set(asked)) or (
            number and ((part[0] == "s" and members) or (part[0] != "s" and (nu or (method in NUMBERED and NUMBERED[method][0] in asked))))
        ):
            raise ValueError(f"entry {name!r}: variant {part!r} says again what another part of it says")
        if part in known:
            said, params = known[part]
            asked |= params
            words.append(said)
            state.append(part)
        elif re.fullmatch(r"s[1-9][0-9]{0,3}", part):
            members = int(part[1:])
            words.append(f"S = {members}")
        elif re.fullmatch(r"[1-9][0-9]{0,6}", part) and method in WITH_NU:
            nu = int(part)
            words.append(f"ν = {nu}")
        elif re.fullmatch(r"[1-9][0-9]{0,2}", part) and method in NUMBERED:
            parameter, said = NUMBERED[method]
            asked[parameter] = int(part)
            words.append(said.format(part))
            state.append(part)
        else:
            possible = [*known, "s1, s2, … (so many members)"]
            possible += ["a number (ν)"] if method in WITH_NU else [f"a number ({NUMBERED[method][0]})"] if method in NUMBERED else []
            raise ValueError(f"entry {name!r}: variant {part!r} is not one of {', '.join(possible)}")
    return Entry(name, method, asked, tuple(words), ":".join(state), members, nu)


def given_params(entry: Entry, params: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a spec gives for an entry: that of its method, of its state's name, of itself, the later over the earlier."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys((entry.method, entry.state_name, entry.name)):
        merged |= params.get(name, {})
    return merged


def file_name(name: str) -> str:
    """An entry's name in a file's name."""
    return name.replace(":", "-")


def method_schema(key: str, task: str = "classification") -> dict[str, Any]:
    """JSON schema of a method's parameters, for labels or ("fields") for fields: what a form is made of."""
    from engine.errors import SpecError
    from engine.registry import get

    method, name = get("methods", key), "ClassParams" if task == "classification" else "Params"
    if not hasattr(method, name):
        raise SpecError(
            f"method {key!r}",
            found=f"no parameters for {task}",
            expected=f"a method of {task}",
            remedy="Choose another method.",
        )
    return getattr(method, name).model_json_schema()
