"""Remedies as this app can follow them: an option of the command line that a remedy names is called as the pages call it."""

import re

FACTS = "“What the file may not say”"
NAMES = {
    "rename": "“Names in the files”",
    "read": "“Variables to read”",
    "calendar": "“Calendar to convert to”",
    "select": "“GRIB messages to read”",
    "step-hours": "“Hours of a time step”",
    "missing": "“Missing values”",
    "units": "“Units”",
    "text": "“Column of the text”",
    "label": "“Column of the label”",
    "encoding": "“Encoding of the text”",
    "size": "“Size of the images”",
    "architecture": FACTS,
    "normalisation": "“Normalisation”",
    "climatology": "“A climatology”",
    "data": "“To verify on”",
    "calibrate": "“To choose ν on” (of classes “To calibrate on”)",
    "fit": "“To learn from”",
    "outside": "“From outside the classes”",
    "nu": "“Values of ν”",
    "params": "“Parameters of the methods”",
    "per-layer": "“Also search a ν for each block of layers”",
    "norm-variables": "“Variables in the scales”",
}
"""What a page calls each option that a remedy may name here."""
_SURFACES = re.compile(r"\s*\(([^()]*\bin Python\b[^()]*)\)")
_OPTION = re.compile(r"(?:with |in )?--([a-z][a-z-]+)(?: '\{.*?\}'| name=FILE| FILE(?: …)?)?")


def here(remedy: str) -> str:
    """The remedy in this app's words. A whole command (`python -m engine …`) stays as it is."""
    if "python -m engine" in remedy:
        return remedy

    def surfaces(found: re.Match[str]) -> str:
        option = _OPTION.search(found[1])
        return f" ({NAMES[option[1]]})" if option and option[1] in NAMES else ""

    def option(found: re.Match[str]) -> str:
        if found[1] not in NAMES:
            return found[0]
        word = found[0].split("--")[0]
        return f"{'under ' if word.strip() == 'with' else word}{NAMES[found[1]]}"

    return _OPTION.sub(option, _SURFACES.sub(surfaces, remedy))
