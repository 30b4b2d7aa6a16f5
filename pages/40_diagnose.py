"""Diagnose: is the forecast honest about its uncertainty, and if not, how is it wrong."""

import streamlit as st

from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.header import header
from pages._parts.words import region_title

TITLE = "Diagnose"
ICON = ":material/fact_check:"
TABS = {
    "PIT curve": ("pit_ecdf", "The same as a curve: how far the PIT departs from uniform. Inside the band is honest."),
    "Ranks": ("rank_histogram", "How many members lie below what was observed. All ranks alike is honest."),
    "Quantiles": ("quantile_reliability", "A 10% quantile should lie above the observation 10% of the time. On the diagonal is honest."),
    "Events": ("reliability", "When it says 70%, it should happen 70% of the time. Inside the band is reliable."),
    "Spread and error": ("spread_skill", "Where members disagree more, errors should be larger by as much. On the diagonal is honest."),
}

looked = header(
    "Is it honest?", "An honest forecast is surprised as often as it says. Flat bars: honest. A bowl: too sure. A hill: not sure enough."
)

others = [nu for nu in looked.grid if nu != looked.nu]
left, right = st.columns([1, 3], vertical_alignment="center")
second = left.selectbox(
    "Compare with",
    [0, *others],
    format_func=lambda nu: "no other ν" if not nu else f"ν = {nu}",
    key="second_nu",
    persist_state="session",
    disabled=not others,
)
nus = looked.nu if not second or second == looked.nu else [looked.nu, second]
with right:
    plain(f"Region: {region_title(looked.region)}. Choose another region above to see whether it holds there too.")

chart("pit_histogram", looked, nu=nus)
for tab, (figure, claim) in zip(st.tabs(list(TABS)), TABS.values(), strict=True):
    with tab:
        plain(claim)
        chart(figure, looked, nu=nus)
