"""The synthetic Verification and its fields, made once."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made():
    """(verification, fields); by path, since some installed packages bring a package `tests` of their own."""
    name = "fake_verification"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].make(0)


@pytest.fixture(scope="session")
def verification(made):
    return made[0]


@pytest.fixture(scope="session")
def fields(made):
    return made[1]
