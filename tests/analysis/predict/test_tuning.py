"""What a search measures next, when it stops, and what it calls best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Limit, Prediction, Range
from loadeval.analysis.predict.tuning import (
    Forecast,
    LeftOut,
    Outcome,
    Search,
    Stop,
    TrialState,
    canonical,
    depth_of,
    times,
)
from loadeval.analysis.remark import Remark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.predict.tuning import Point

    Rate = Callable[[Point], float]

SPACE: dict[str, list[Any]] = {"num_workers": [0, 1, 2, 3, 4, 6, 8], "prefetch_factor": [2, 4]}
PREDICTED = ("num_workers", "prefetch_factor")


def prediction(
    rate: float, *, limit: Limit = Limit.WORKERS, workers: int = 1, memory_bytes: float = 1e6
) -> Prediction:
    """The prediction for batches of one sample, expected within 5%."""
    throughput = Range(rate, 0.95 * rate, 1.05 * rate)
    each = Range(1e9 / rate, 0.95e9 / rate, 1.05e9 / rate)
    ones = Range(1.0, 1.0, 1.0)
    return Prediction(
        *(workers, 2, True, None, None, {}, each, throughput, "samples", ones, limit),
        *(memory_bytes, 1e6, ()),
    )


def up_to(most: int) -> Rate:
    """Each worker adds as much, up to a number of them."""
    return lambda point: 100.0 * max(min(point["num_workers"], most), 0.5)


class Scripted:
    """A search whose measurements give what is `true`, within `spread`."""

    def __init__(
        self,
        true: Rate,
        predicted: Rate | None = None,
        *,
        present: Point | None = None,
        space: dict[str, list[Any]] | None = None,
        max_trials: int = 6,
        spread: float = 0.01,
        fails: Callable[[Point], bool] = lambda _: False,
        limit: Limit = Limit.WORKERS,
        left_out: Callable[[Point], bool] = lambda _: False,
    ) -> None:
        start = {"num_workers": 1, "prefetch_factor": 2} if present is None else present
        self.true, self.predicted, self.spread, self.fails = true, predicted, spread, fails
        self.limit, self.left_out = limit, left_out
        self.search = Search(start, SPACE if space is None else space, PREDICTED, max_trials)
        self.groups: list[list[Point]] = [[self.search.points[0]]]
        self.search.add(self.groups[0], self.measured(self.groups[0]))

    def forecast(self, point: Point) -> Forecast:
        assert self.predicted is not None
        expected = prediction(self.predicted(point), limit=self.limit)
        reason = Remark(LeftOut.MEMORY) if self.left_out(point) else None
        return Forecast(expected.throughput, expected, reason)

    def measured(self, group: Sequence[Point]) -> list[Outcome]:
        works = [place for place, point in enumerate(group) if not self.fails(point)]
        outcomes = []
        for place, point in enumerate(group):
            if place not in works:
                outcomes.append(Outcome(error="OSError: gone"))
                continue
            rate = Estimate(self.true(point))
            over = {
                other: self.around(rate.value / self.true(group[other]))
                for other in works
                if other != place
            }
            outcomes.append(Outcome(rate, rate, over))
        return outcomes

    def around(self, ratio: float) -> Estimate:
        return Estimate(ratio, ratio * (1 - self.spread), ratio * (1 + self.spread))

    def run(self) -> Point:
        """The best, once it has stopped."""
        forecast = None if self.predicted is None else self.forecast
        while group := self.search.next_group(forecast):
            self.groups.append(group)
            self.search.add(group, self.measured(group))
        return self.search.points[self.search.best]


def test_the_predicted_best_and_its_neighbours_take_turns_with_the_present() -> None:
    """The neighbours in workers, where their range reaches the best's prediction."""
    scripted = Scripted(up_to(8), lambda point: 100 + 2 * point["num_workers"])
    scripted.run()
    workers = [[point["num_workers"] for point in group] for group in scripted.groups]
    assert workers[:2] == [[1], [1, 8, 6]]


def test_it_stops_when_the_best_is_better_than_its_neighbours() -> None:
    peak = {0: 50.0, 1: 100.0, 2: 200.0, 3: 296.0, 4: 300.0, 6: 290.0, 8: 250.0}
    true = {**peak, 3: 280.0, 6: 270.0}
    scripted = Scripted(
        lambda point: true[point["num_workers"]], lambda point: peak[point["num_workers"]]
    )
    # Level within 2%, three workers are predicted to do; they are measured to be slower.
    assert scripted.run() == {"num_workers": 4, "prefetch_factor": 2}
    assert scripted.search.stopped is Stop.BETTER


def test_present_settings_stay_where_nothing_is_predicted_to_gain() -> None:
    """Nothing else is measured then."""
    scripted = Scripted(up_to(1), lambda point: 100 + 0.1 * point["num_workers"])
    assert scripted.run() == scripted.search.points[0]
    assert len(scripted.search.points) == 1
    assert scripted.search.stopped is Stop.SMALL_GAIN


def test_no_neighbours_are_measured_where_the_step_is_the_limit() -> None:
    scripted = Scripted(up_to(4), up_to(4), limit=Limit.STEP)
    assert scripted.run()["num_workers"] == 4
    assert [len(group) for group in scripted.groups] == [1, 2]


def test_a_prediction_that_was_wrong_is_followed_by_another() -> None:
    """The fastest of those that were measured is best."""
    scripted = Scripted(up_to(3))

    def better(point: Point) -> Forecast:
        learned = len(scripted.search.points) > 1
        rate = (up_to(3) if learned else up_to(8))(point)
        return Forecast(Range(rate, rate, rate), prediction(rate))

    scripted.predicted, scripted.forecast = up_to(8), better  # type: ignore[method-assign]
    assert scripted.run() == {"num_workers": 3, "prefetch_factor": 2}


def test_equals_go_to_fewer_workers_then_to_less_prefetch() -> None:
    scripted = Scripted(up_to(3), up_to(3), present={"num_workers": 1, "prefetch_factor": 4})
    assert scripted.run() == {"num_workers": 3, "prefetch_factor": 2}


@pytest.mark.parametrize(("predicted", "best"), [(1.0, 2), (1.1, 4)])
def test_within_the_interval_predictions_decide(predicted: float, best: int) -> None:
    """Measured 4% apart, give or take 10%: fewer workers, unless both say that more are faster."""
    search = Search({"num_workers": 2}, {"num_workers": [2, 4]}, PREDICTED, 6)

    def forecast(point: Point) -> Forecast:
        rate = 100 * (predicted if point["num_workers"] == 4 else 1.0)
        return Forecast(Range(rate, rate, rate), prediction(rate))

    group: list[Point] = [{"num_workers": 2}, {"num_workers": 4}]
    search.points.append(group[1])
    search.outcomes.append(Outcome())
    rate = Estimate(1.0)
    slower, faster = Estimate(0.96, 0.86, 1.06), Estimate(1.04, 0.94, 1.14)
    search.add(group, [Outcome(rate, rate, {1: slower}), Outcome(rate, rate, {0: faster})])
    assert search.points[search.best]["num_workers"] == 2
    search.next_group(forecast)
    assert search.points[search.best]["num_workers"] == best


def test_what_is_much_faster_is_no_tie() -> None:
    """It may have a wide interval."""
    search = Search({"num_workers": 2}, {"num_workers": [2, 4]}, PREDICTED, 6)
    group: list[Point] = [{"num_workers": 2}, {"num_workers": 4}]
    search.points.append(group[1])
    search.outcomes.append(Outcome())
    rate = Estimate(1.0)
    slower, faster = Estimate(0.8, 0.6, 1.1), Estimate(1.25, 0.9, 1.7)
    search.add(group, [Outcome(rate, rate, {1: slower}), Outcome(rate, rate, {0: faster})])
    assert search.points[search.best]["num_workers"] == 4


def test_a_point_is_compared_with_the_present_by_one_beside_both() -> None:
    """The intervals of both ratios add up."""
    scripted = Scripted(up_to(4), present={"num_workers": 1}, space={"num_workers": [1, 2, 4]})
    scripted.run()
    assert [point["num_workers"] for point in scripted.groups[-1]] == [2, 4]
    ratio = scripted.search.ratio(2)
    assert ratio is not None
    assert ratio.value == pytest.approx(4)
    assert (ratio.low, ratio.high) == pytest.approx((4 / 1.0143, 4 * 1.0142), rel=1e-3)


def test_a_product_of_what_has_no_interval_has_none() -> None:
    assert times(Estimate(2.0), Estimate(3.0, 2.9, 3.1)) == Estimate(6.0)


@pytest.mark.parametrize("of_epochs", [True, False])
def test_without_a_common_point_rates_are_compared(of_epochs: bool) -> None:
    """There is none when what was best until then fails beside it."""
    search = Search({"a": 1}, {"a": [1, 2, 3]}, (), 3)
    search.points += [{"a": 2}, {"a": 3}]
    search.outcomes += [Outcome(), Outcome()]
    for value, rate in ((1, 10.0), (2, 30.0), (3, 20.0)):
        estimate = Estimate(rate)
        search.add([{"a": value}], [Outcome(estimate, estimate if of_epochs else None)])
    assert search.best == 1


def test_points_of_different_groups_are_compared_by_the_present() -> None:
    search = Search({"num_workers": 1}, {"num_workers": [1, 2, 3]}, PREDICTED, 6)
    rate = Estimate(1.0)
    for workers, ratio in ((2, 2.0), (3, 3.0)):
        point = {"num_workers": workers}
        search.points.append(point)
        search.outcomes.append(Outcome())
        outcomes = [Outcome(rate, rate), Outcome(rate, rate, {0: Estimate(ratio, ratio, ratio)})]
        search.add([search.points[0], point], outcomes)
    assert search.points[search.best] == {"num_workers": 3}
    assert search.ratio(1, 2) is None


def test_max_trials_ends_it() -> None:
    scripted = Scripted(up_to(8), lambda point: 100 + 2 * point["num_workers"], max_trials=2)
    assert scripted.run()["num_workers"] == 8
    assert len(scripted.search.points) == 2
    assert scripted.search.stopped is Stop.MAX_TRIALS
    assert scripted.search.next_group(scripted.forecast) == []


def test_batches_in_another_order_cost_more_than_workers() -> None:
    space: dict[str, list[Any]] = {"num_workers": [1, 2, 3], "in_order": [True, False]}
    search = Search({"num_workers": 1, "in_order": True}, space, (), 6)
    points = [{"num_workers": 2, "in_order": False}, {"num_workers": 3, "in_order": True}]
    assert max(points, key=search._cost) == points[0]


def test_no_queue_is_deeper_than_asked_for() -> None:
    scripted = Scripted(
        up_to(8), lambda point: 10 * point["num_workers"] + point.get("prefetch_factor", 1)
    )
    scripted.search._deepest = 16
    assert scripted.run() == {"num_workers": 8, "prefetch_factor": 2}


def test_queues_grow_by_what_was_measured() -> None:
    """A deep one takes long to measure: first it is seen that a shallower one is worth it."""
    space = {**SPACE, "num_workers": [*SPACE["num_workers"], 12, 16]}
    scripted = Scripted(up_to(16), up_to(16), space=space)
    scripted.search._cautious = 8
    assert scripted.run()["num_workers"] == 16
    assert [depth_of(point) for point in scripted.search.points] == [2, 8, 32]


def test_what_fails_is_not_best() -> None:
    scripted = Scripted(up_to(8), up_to(8), fails=lambda point: point["num_workers"] > 4)
    scripted.run()
    states = [outcome.state for outcome in scripted.search.outcomes]
    assert TrialState.FAILED in states
    assert scripted.search.outcomes[scripted.search.best].state is TrialState.MEASURED


def test_what_there_is_no_room_for_is_left_out() -> None:
    scripted = Scripted(up_to(8), up_to(8), left_out=lambda point: point["num_workers"] > 4)
    assert scripted.run()["num_workers"] == 4
    assert {point["num_workers"] for point, _ in scripted.search.left_out} == {6, 8}


def test_without_workers_their_settings_mean_nothing() -> None:
    """So there is one point without workers."""
    assert canonical({"num_workers": 0, "prefetch_factor": 4, "pin_memory": True}) == {
        "num_workers": 0,
        "pin_memory": True,
    }
    scripted = Scripted(up_to(2), up_to(2), present={"num_workers": 0, "prefetch_factor": 2})
    assert scripted.run() == {"num_workers": 2, "prefetch_factor": 2}


def test_what_is_not_predicted_is_tried_for_the_best() -> None:
    """One at a time, at the end, without a prediction."""
    space = {**SPACE, "pin_memory": [False, True]}
    scripted = Scripted(
        lambda point: up_to(3)(point) * (1.2 if point["pin_memory"] else 1.0),
        up_to(3),
        present={"num_workers": 1, "prefetch_factor": 2, "pin_memory": False},
        space=space,
    )
    assert scripted.run() == {"num_workers": 3, "prefetch_factor": 2, "pin_memory": True}
    pinned = [point["pin_memory"] for point in scripted.search.points]
    assert pinned == sorted(pinned)
    assert scripted.search.forecasts[-1] is None
    assert scripted.search.forecasts[1] is not None


def test_without_predictions_it_goes_from_neighbour_to_neighbour() -> None:
    """Doubled, halved, doubled again, until that no longer helps."""
    space = {"num_workers": [1, 2, 4, 8, 16]}
    scripted = Scripted(up_to(4), present={"num_workers": 1}, space=space)
    assert scripted.run() == {"num_workers": 4}
    assert [point["num_workers"] for point in scripted.search.points] == [1, 2, 4, 8]
    assert scripted.search.stopped is Stop.NO_FASTER


def test_without_predictions_an_interval_with_1_is_a_tie() -> None:
    space = {"num_workers": [1, 2]}
    scripted = Scripted(
        lambda point: 100 + 5 * point["num_workers"],
        present={"num_workers": 1},
        space=space,
        spread=0.1,
    )
    assert scripted.run() == {"num_workers": 1}


def test_better_than_every_neighbour() -> None:
    space = {"num_threads": [1, 2, 4]}
    rates = {1: 50.0, 2: 100.0, 4: 60.0}
    scripted = Scripted(
        lambda point: rates[point["num_threads"]], present={"num_threads": 2}, space=space
    )
    assert scripted.run() == {"num_threads": 2}
    assert scripted.search.stopped is Stop.BETTER


def test_what_is_no_number_has_all_others_as_neighbours() -> None:
    space = {"mode": ["a", "b", "c"]}
    scripted = Scripted(
        lambda point: {"a": 1.0, "b": 2.0, "c": 3.0}[point["mode"]],
        present={"mode": "a"},
        space=space,
    )
    assert scripted.run() == {"mode": "c"}
    assert len(scripted.groups[1]) == 3


def test_without_workers_only_their_number_has_neighbours() -> None:
    scripted = Scripted(
        lambda point: 1.0 + (point["num_workers"] == 0),
        present={"num_workers": 0, "prefetch_factor": 2},
        space={"num_workers": [0, 1], "prefetch_factor": [2, 4]},
    )
    assert scripted.run() == {"num_workers": 0}
    assert len(scripted.search.points) == 2


def test_without_an_interval_2_percent_decide() -> None:
    search = Search({"a": 1}, {"a": [1, 2]}, (), 3)
    search.points.append({"a": 2})
    search.outcomes.append(Outcome())
    rate = Estimate(1.0)
    for ratio, best in ((1.01, 0), (1.03, 1)):
        search.add([{"a": 1}, {"a": 2}], [Outcome(rate), Outcome(rate, None, {0: Estimate(ratio)})])
        assert search.best == best


def test_what_failed_beside_another_has_no_ratio() -> None:
    search = Search({"a": 1}, {"a": [1, 2, 3]}, (), 3)
    search.points += [{"a": 2}, {"a": 3}]
    search.outcomes += [Outcome(), Outcome()]
    search.add([{"a": 2}, {"a": 3}], [Outcome(Estimate(1.0)), Outcome(error="gone")])
    assert search.ratio(2) is None


def test_before_anything_is_measured_the_present_is_best() -> None:
    assert Search({"a": 1}, {"a": [1, 2]}, (), 3).best == 0


def test_a_point_that_was_cut_short_keeps_what_was_measured_before() -> None:
    search = Search({"a": 1}, {"a": [1, 2]}, (), 3)
    search.add([{"a": 1}], [Outcome(Estimate(1.0))])
    search.add([{"a": 1}], [Outcome()])
    assert search.outcomes[0].throughput == Estimate(1.0)
