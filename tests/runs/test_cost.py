"""Time that is said beforehand: read off a clock that is made up, so that the arithmetic is judged and not this machine."""

import pytest

from engine.runs.cost import Cost, calibration_seconds, estimate, measured, of_run, sweep_seconds, undisturbed


class Clock:
    """A clock that goes on by what is computed: a call, members that cost more at large ν, scores."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def ensemble(self, members: int, nu: int) -> None:
        self.now += 0.02 + members * self.member(nu)

    @staticmethod
    def member(nu: int) -> float:
        return 0.01 + 0.00005 * nu

    def scored(self, members: int) -> None:
        self.now += 0.002 * members


def test_a_call_is_told_from_its_members_and_scores_from_both() -> None:
    clock = Clock()
    cost = measured(0.03, clock.ensemble, clock.scored, [clock])
    assert cost.call == pytest.approx(0.02) and cost.scoring == pytest.approx(0.002) and cost.forward == 0.03
    for nu in (1, 16, 64, 256, 512):
        assert cost.at(nu) == pytest.approx(clock.member(nu))
    assert cost.at(16) < cost.at(32) < cost.at(64) and cost.at(10**6) == cost.at(512)


def test_a_slow_model_is_measured_at_fewer_nu() -> None:
    clock, asked = Clock(), []

    def slow(members: int, nu: int) -> None:
        asked.append((members, nu))
        clock.now += members * 10

    assert set(measured(10.0, slow, clock.scored, [clock]).member) == {16} and len(asked) == 3


def test_what_else_a_machine_does_is_not_counted() -> None:
    wall, processor = Clock(), Clock()

    def work(others: float, threads: int) -> None:
        wall.now += 1 + others
        processor.now += 1.0 * threads

    assert undisturbed(lambda: work(30.0, 1), [wall, processor]) == 1, "beside others"
    assert undisturbed(lambda: work(0.0, 2), [wall, processor]) == 1, "with two threads"


COST = Cost(forward=0.03, call=0.02, member={1: 0.01, 64: 0.02}, scoring=0.002)


def test_a_sweep_costs_its_ensembles_and_follows_what_is_asked() -> None:
    asked = {"nu": (1, 64), "members": 20, "cases": 42}
    start = sweep_seconds(COST, **asked | {"cases": 0})
    one = 2 * 0.03 + 2 * 0.02 + 20 * (0.01 + 0.02 + 2 * 0.002)
    assert sweep_seconds(COST, **asked) - start == pytest.approx(42 * one)
    assert sweep_seconds(COST, **asked, leads=2) - start == pytest.approx(84 * one)
    assert sweep_seconds(COST, **asked, variables=3) > sweep_seconds(COST, **asked)
    chosen_on = sweep_seconds(COST, **asked, calibrate_cases=18, calibrate_members=4) - sweep_seconds(COST, **asked)
    assert chosen_on == pytest.approx(18 * (0.06 + 0.04 + 4 * 0.034))


def test_a_form_is_estimated_by_its_fields_and_the_schemas_defaults() -> None:
    plan = {"cost": COST.as_dict(), "cases": 100, "calibrate_cases": 50, "variables": 2}
    usual = estimate(plan, {})
    assert usual == pytest.approx(sweep_seconds(
        COST, nu=(1, 2, 4, 8, 16, 32, 64, 256), members=20, cases=100, variables=2, calibrate_cases=24, calibrate_members=4
    ))  # fmt: skip
    assert estimate(plan, {"max_cases": 10}) < usual < estimate(plan, {"members": 40})
    assert estimate(plan, {"max_cases": 1000}) == usual, "no more cases than there are"
    assert estimate(plan, {"variables": ("z",)}) < usual


def test_what_a_finished_sweep_took_tells_what_the_next_one_takes() -> None:
    cost = of_run({1: 8.4, 64: 16.8}, cases=42, members=20)
    assert cost.at(1) == pytest.approx(0.01) and cost.at(64) == pytest.approx(0.02)
    few, many = (calibration_seconds(cost, cases=n, members=4, nu_max=512) for n in (10, 20))
    assert few < many < calibration_seconds(cost, cases=20, members=4, nu_max=512, per_layer=True)


def test_the_demos_time_is_known_once_its_model_was_timed(home, monkeypatch) -> None:
    from engine.runs import demo_time

    asked = []

    def looked(*files, **more) -> dict:
        asked.append(files)
        return {"plan": {"cost": COST.as_dict(), "cases": 300, "calibrate_cases": 60, "variables": 1}}

    monkeypatch.setattr(demo_time, "preflight", looked)
    if not demo_time.demo_spec().checkpoint.is_file():
        pytest.skip("the demo's files are not part of this copy")
    assert demo_time.demo_seconds() is None
    for _ in range(2):
        demo_time.measure_demo()
    assert len(asked) == 1, "once is enough"
    sweep, found = demo_time.demo_seconds(), demo_time.demo_seconds(nu_max=512)
    usual = {"cases": 42, "variables": 1, "calibrate_cases": 18, "calibrate_members": 4}
    assert sweep == pytest.approx(sweep_seconds(COST, nu=(1, 2, 4, 8, 16, 32, 64, 256), members=20, **usual))
    assert found == pytest.approx(calibration_seconds(COST, cases=18, members=4, nu_max=512))
