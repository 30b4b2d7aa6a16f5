"""The strip above every result: which run, which ν, where. It also answers for runs that are not there, not done, or failed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

import engine
from engine import judging
from pages._parts import choice
from pages._parts.cards import empty, literal, plain
from pages._parts.missing import other_run, unknown
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import classifies, kin, runs_that, stamp_of, verification_of
from pages._parts.words import POINTS, percent, region_title, variable_title, when

if TYPE_CHECKING:
    import xarray as xr

HELP = (
    "How many attention draws each query makes. Small ν spreads the members wide; large ν brings back the one forecast of the frozen model."
)


@dataclass(frozen=True)
class Looked:
    """What a page shows: one run, one ν, one region, lead time and variable."""

    key: str
    stamp: int
    verification: "xr.Dataset"
    nu: int
    region: str
    lead_time: float
    variable: str

    @property
    def where(self) -> dict[str, Any]:
        """The selections without ν."""
        return {"region": self.region, "lead_time": self.lead_time, "variable": self.variable}

    @property
    def select(self) -> dict[str, Any]:
        """What a figure is drawn at."""
        return self.where | {"nu": self.nu}

    @property
    def facts(self) -> dict[str, Any]:
        """What its lineage says beside what every run has."""
        v = self.verification
        valid = float(v["valid_fraction"].sel(**self.where)) if "valid_fraction" in v else float("nan")
        return {
            "ν looked at": self.nu if self.uses_nu else None,
            "Estimator": v.attrs.get("estimator"),
            "Valid data": percent(valid) if valid == valid else None,
            "Intervals": f"95%, for cases that hang together: worth {v.attrs.get('independent_cases', '?')} independent ones",
        }

    @property
    def uses_nu(self) -> bool:
        """Whether the run's method has a ν at all."""
        return engine.has_nu(self.verification.attrs)

    @property
    def grid(self) -> list[int]:
        """The run's values of ν."""
        return [int(n) for n in self.verification.nu.values]


def best_nu(verification: "xr.Dataset", **where: Any) -> int:
    """ν where a page starts: the calibration-first point of what is looked at, else the middle of the grid."""
    grid = [int(n) for n in verification.nu.values]
    chosen = judging.operating_points(verification, **where).get("calibration_first", {}).get("nu")
    return int(chosen) if chosen in grid else grid[len(grid) // 2]


def header(title: str, claim: str, *, region: bool = True, without_nu: tuple[str, str] | None = None) -> Looked:
    """Draw the strip and return what is chosen; where there is nothing to show, say why and end the page.

    `without_nu`: title and claim for a run whose method has no ν.
    """
    top = st.empty()
    top.html(_head(title, claim))
    key = _run()
    state = engine.progress(key)
    if state.status in LIVE:
        follow(key)
        st.stop()
    if state.status != "done":
        ended_badly(key)
        st.stop()
    verification = verification_of(key)
    if without_nu and not engine.has_nu(verification.attrs):
        top.html(_head(*without_nu))
    remarks: list[str] = []
    with st.container(key="strip"):
        places = st.columns([3, 2, 2, 1], vertical_alignment="bottom")
        with places[0]:
            _pick_run(key)
        with places[1]:
            where = (
                {"region": _pick("region", "Region", list(map(str, verification.region.values)), region_title, remarks)} if region else {}
            )
        with places[2]:
            where["variable"] = _pick("variable", "Variable", list(map(str, verification.variable.values)), variable_title, remarks)
        with places[3]:
            where["lead_time"] = _pick(
                "lead_time", "Lead time", [float(v) for v in verification.lead_time.values], lambda hours: f"{hours:g} h", remarks
            )
        for remark in remarks:
            st.warning(literal(remark))
        where.setdefault("region", str(verification.region.values[0]))
        nu = _pick_nu(verification, where) if engine.has_nu(verification.attrs) else best_nu(verification)
    return Looked(key, stamp_of(key), verification, nu, **where)


def _head(title: str, claim: str) -> str:
    return f"<h1 class='nu-title'>{title}</h1><p class='nu-claim'>{claim}</p>"


def _run() -> str:
    """The run of the address; else the newest that is done. An unknown key is said, with the runs that exist."""
    known = runs_that(calibrate=False)
    key = choice.current("run")
    if key is not None and classifies(key):  # the run of another page
        key = choice.turn_to("fields", {r.key for r in known})
    if key is None:
        done = [r.key for r in known if r.status == "done"] or [r.key for r in known if r.status in LIVE]
        if not done:
            empty(
                "There is no result yet. The start page makes one with a click, from data that came with this app.",
                "10_start.py",
                "Go to the start page",
            )
            st.stop()
        asked = choice.current("nu")
        choice.put(run=done[0])
        if asked is not None:  # a ν without a run is meant for the run that is shown
            st.session_state["_nu"] = asked
        return done[0]
    calibration = next((r for r in runs_that(calibrate=True) if r.key == key), None)
    if calibration is not None and (verified := kin(calibration, known)):
        key = verified[0].key  # a calibration has no curves to show: the sweep of the same model and data is meant
        choice.put(run=key)
    if key not in {r.key for r in known}:
        if calibration is not None:
            empty("This run chose ν; nothing was verified with it yet.", "35_calibrate.py", "Open the calibration")
        else:
            unknown(key)
        if done := [r for r in known if r.status == "done"]:
            other_run(done)
        st.page_link("10_start.py", label="Go to the start page")
        st.stop()
    return key


def _pick_run(key: str) -> None:
    pick_run(key, runs_that(calibrate=False))


def pick_run(key: str, runs: list[Any]) -> None:
    """Choose among the finished ones of these runs."""
    done = {r.key: r for r in runs if r.status == "done"}
    st.session_state["pick_run"] = key
    st.selectbox(
        "Run",
        list(done),
        format_func=lambda k: f"{done[k].title} · {when(done[k].finished or done[k].created)}" if k in done else k,
        key="pick_run",
        on_change=lambda: choice.put(run=st.session_state["pick_run"]),
    )


def _pick(name: str, label: str, options: list[Any], spell: Any, remarks: list[str]) -> Any:
    """One of the Verification's coordinates, in the address and remembered over pages. A single option is shown, not asked for; that
    the address names another one is said in `remarks`.
    """
    value, remark = choice.one_of(name, options, spell)
    if remark:
        remarks.append(remark)
    st.session_state[f"pick_{name}"] = value
    st.selectbox(
        label,
        options,
        format_func=spell,
        key=f"pick_{name}",
        on_change=lambda: choice.keep(name, choice.spelt(st.session_state[f"pick_{name}"])),
        disabled=len(options) == 1,
    )
    return value


def _pick_nu(verification: "xr.Dataset", where: dict[str, Any]) -> int:
    grid = [int(n) for n in verification.nu.values]
    nu, remark = choice.nearest(choice.current("nu"), grid, best_nu(verification, **where))
    if remark:
        st.warning(literal(remark))
    choice.put(nu=nu)
    st.session_state["pick_nu"] = nu
    points = judging.operating_points(verification, **where)
    left, right = st.columns([5, 4], vertical_alignment="bottom")
    left.pills(
        "Concentration ν", grid, key="pick_nu", required=True, help=HELP, on_change=lambda: choice.put(nu=st.session_state["pick_nu"])
    )
    with right:
        named = " · ".join(f"{POINTS[name]}: ν = {point['nu']}" for name, point in points.items())
        strange = judging.where_chosen(points)
        plain(f"{named}{f' · {strange}' if strange else ''}", "nu-note nu-right")
    return nu
